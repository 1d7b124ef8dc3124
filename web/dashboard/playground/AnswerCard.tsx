import {
  Alert,
  Badge,
  Box,
  Button,
  Card,
  Code,
  Group,
  SegmentedControl,
  Skeleton,
  Stack,
  Table,
  Tabs,
  Text,
  Title,
} from '@mantine/core';
import { useEffect, useMemo, useState } from 'react';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { IconAlertTriangle, IconDownload } from '../../ui/icons.tsx';
import { duration, Phases } from '../activity/OperationsTable.tsx';
import { callStep, progressQuery, stepsLeft } from '../getting-started/queries.ts';
import { AnchorLink, connectionPage, integrationPage } from '../links.tsx';
import { type Advice, adviceOn } from './advice.ts';
import { maxTextShown, sizeOf, type TableOf, tableOf } from './answer.ts';
import { entryQuery, type ProxiedAnswer } from './queries.ts';
import './json-tree.css';
import { useQuery } from '@tanstack/react-query';

/** The response of the provider or the service, with the next step for an error. */
export function AnswerCard({ answer }: { answer: ProxiedAnswer }) {
  const { status, headers, bytes, totalMs } = answer;
  const advice = adviceOn(answer);
  return (
    <Card component="section" aria-label="Response">
      <Stack gap="md">
        <Group gap="xs">
          <Title order={2}>Response</Title>
          <Badge color={status < 300 ? 'green' : status < 400 ? 'yellow' : 'red'} size="lg">
            {status}
          </Badge>
          <Dimmed>
            {duration(totalMs)} · {sizeOf(bytes.size)}
          </Dimmed>
        </Group>
        {status < 400 && <NextStep environment={answer.caller.environment} />}
        {advice !== undefined && <AdviceNotice advice={advice} answer={answer} />}
        <Tabs defaultValue="body" keepMounted={false}>
          <Tabs.List>
            <Tabs.Tab value="body">Body</Tabs.Tab>
            <Tabs.Tab value="headers">Headers ({headers.length})</Tabs.Tab>
            <Tabs.Tab value="timing">Timing</Tabs.Tab>
          </Tabs.List>
          <Tabs.Panel value="body" pt="md">
            <AnswerBody answer={answer} />
          </Tabs.Panel>
          <Tabs.Panel value="headers" pt="md">
            <Table layout="fixed">
              <Table.Tbody>
                {headers.map(([name, value]) => (
                  <Table.Tr key={name}>
                    <Table.Th w="40%" fw={400} c="dimmed" className="wrap">
                      {name}
                    </Table.Th>
                    <Table.Td ff="monospace" fz="xs" className="wrap">
                      {value}
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </Tabs.Panel>
          <Tabs.Panel value="timing" pt="md">
            <Timing answer={answer} />
          </Tabs.Panel>
        </Tabs>
      </Stack>
    </Card>
  );
}

/** The first step of getting started that is left. From the cache, which has it until all steps are done. */
function NextStep({ environment }: { environment: string }) {
  const { data: progress } = useQuery({ ...progressQuery(environment), enabled: false });
  const next = progress && stepsLeft(progress).find((title) => title !== callStep);
  if (next === undefined) return null;
  return (
    <Dimmed>
      Next step:{' '}
      <AnchorLink inherit underline="always" to="/$environment/getting-started" params={{ environment }}>
        {next}
      </AnchorLink>
    </Dimmed>
  );
}

function AdviceNotice({ advice, answer }: { advice: Advice; answer: ProxiedAnswer }) {
  const { by, title, text, leadsTo } = advice;
  const { environment, integration, connection } = answer.caller;
  return (
    <Alert
      color={by === 'Trellis' ? 'red' : 'orange'}
      icon={<IconAlertTriangle size={18} />}
      title={title}
      role="alert"
    >
      <Stack gap={6} align="flex-start">
        <Text size="sm">{text}</Text>
        <Text size="sm">
          {by === 'Trellis' ? (
            <>
              This response is from Trellis, not from the provider: <code>{answer.ownError}</code>
            </>
          ) : (
            'This is the unchanged response of the provider.'
          )}
        </Text>
        {leadsTo === 'connection' && (
          <AnchorLink
            size="sm"
            c="inherit"
            underline="always"
            {...connectionPage(environment, { integration, id: connection })}
          >
            Open the connection
          </AnchorLink>
        )}
        {leadsTo === 'integration' && (
          <AnchorLink size="sm" c="inherit" underline="always" {...integrationPage(environment, integration)}>
            Open the integration
          </AnchorLink>
        )}
        {leadsTo === 'activity' && (
          <AnchorLink
            size="sm"
            c="inherit"
            underline="always"
            to="/$environment/activity"
            params={{ environment }}
            search={{ connection }}
          >
            Open the activity of the connection
          </AnchorLink>
        )}
      </Stack>
    </Alert>
  );
}

/** The body as a table, a tree or text. A long body is truncated, and can be downloaded in full. */
function AnswerBody({ answer }: { answer: ProxiedAnswer }) {
  const { body, bytes } = answer;
  const table = useMemo(() => (body.kind === 'json' ? tableOf(body.value) : undefined), [body]);
  const views = [
    ...(table === undefined ? [] : ['Table']),
    ...(body.kind === 'json' ? ['Tree'] : []),
    'Text',
  ] as const;
  const [chosen, setChosen] = useState<string>();
  if (body.kind === 'empty') return <Text c="dimmed">The response has no body.</Text>;
  if (body.kind === 'binary') {
    return (
      <Group>
        <Text>{sizeOf(bytes.size)} of binary data.</Text>
        <Download answer={answer} />
      </Group>
    );
  }
  const view = views.find((one) => one === chosen) ?? views[0];
  const text = body.kind === 'json' ? JSON.stringify(body.value, null, 2) : body.text;
  const isCut = text.length > maxTextShown;
  return (
    <Stack gap="sm">
      <Group justify="space-between" gap="xs">
        {views.length > 1 ? (
          <SegmentedControl
            size="xs"
            aria-label="Show as"
            data={[...views]}
            value={view ?? 'Text'}
            onChange={setChosen}
          />
        ) : (
          <span />
        )}
        <Group gap={4}>
          {!isCut && <CopyButton value={body.text} what="the body" />}
          <Download answer={answer} />
        </Group>
      </Group>
      {view === 'Table' && table !== undefined && <BodyTable table={table} />}
      {view === 'Tree' && body.kind === 'json' && <JsonTree value={body.value} />}
      {view === 'Text' && (
        <>
          <Code block tabIndex={0} mah={520}>
            {isCut ? text.slice(0, maxTextShown) : text}
          </Code>
          {isCut && (
            <Dimmed>
              The first {maxTextShown.toLocaleString()} of {text.length.toLocaleString()} characters. Download
              the response to see all of them.
            </Dimmed>
          )}
        </>
      )}
    </Stack>
  );
}

function BodyTable({ table }: { table: TableOf }) {
  const { name, columns, rows, firstRow, rowCount, columnCount } = table;
  const cut = [
    ...(rowCount > rows.length ? [`${rows.length} of ${rowCount.toLocaleString()} rows`] : []),
    ...(columnCount > columns.length ? [`${columns.length} of ${columnCount} columns`] : []),
  ];
  return (
    <Stack gap={6}>
      {name !== '' && (
        <Dimmed>
          <code>{name}</code>
        </Dimmed>
      )}
      <Table.ScrollContainer
        minWidth={200}
        maxHeight={520}
        className="framed"
        scrollAreaProps={{
          offsetScrollbars: false,
          viewportProps: { tabIndex: 0, 'aria-label': 'The response as a table' },
        }}
      >
        <Table stickyHeader horizontalSpacing="sm" withColumnBorders>
          <Table.Thead>
            <Table.Tr>
              <Table.Th w={1} aria-label="Row" />
              {columns.map((column) => (
                <Table.Th key={column}>{column}</Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rows.map((row, at) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: a row is its place in the answer
              <Table.Tr key={at}>
                <Table.Th fw={400} c="dimmed" ta="right" scope="row">
                  {firstRow + at}
                </Table.Th>
                {row.map((cell, column) => (
                  <Table.Td key={columns[column]} maw={320} className="wrap">
                    {cell}
                  </Table.Td>
                ))}
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
      {cut.length > 0 && <Dimmed>{cut.join(', ')}. Download the response to see all of it.</Dimmed>}
    </Stack>
  );
}

/** The original bytes. */
function Download({ answer }: { answer: ProxiedAnswer }) {
  const [href, setHref] = useState<string>();
  useEffect(() => {
    const made = URL.createObjectURL(answer.bytes);
    setHref(made);
    return () => URL.revokeObjectURL(made);
  }, [answer.bytes]);
  const end = answer.body.kind === 'json' ? 'json' : answer.body.kind === 'text' ? 'txt' : 'bin';
  return (
    <Button
      component="a"
      size="compact-sm"
      variant="default"
      href={href ?? '#'}
      download={`answer.${end}`}
      leftSection={<IconDownload size={14} />}
    >
      Download {sizeOf(answer.bytes.size)}
    </Button>
  );
}

/** The number of children shown of a list or object; the text has all of them. */
const maxChildren = 100;

/** JSON that is expanded level by level, with mouse or keyboard. Collapsed levels are not rendered. */
function JsonTree({ value }: { value: unknown }) {
  return (
    <Box className="json-tree framed" p="sm" tabIndex={0} role="group" aria-label="The response as a tree">
      <Node value={value} depth={0} />
    </Box>
  );
}

function Node({ name, value, depth }: { name?: string; value: unknown; depth: number }) {
  const [isOpen, setOpen] = useState(depth < 2);
  const label = name !== undefined && <span className="json-name">{name}: </span>;
  if (typeof value !== 'object' || value === null) {
    return (
      <div className="json-leaf">
        {label}
        <span className={`json-${value === null ? 'null' : typeof value}`}>{literalOf(value)}</span>
      </div>
    );
  }
  const children: [string, unknown][] = Object.entries(value);
  const isList = Array.isArray(value);
  const size = `${children.length} ${isList ? 'entries' : 'fields'}`;
  return (
    <details open={isOpen} onToggle={({ currentTarget: { open } }) => setOpen(open)}>
      <summary>
        {label}
        <Text span size="xs" c="dimmed">
          {isList ? '[ ' : '{ '}
          {children.length === 1 ? size.replace('entries', 'entry').replace('fields', 'field') : size}
          {isList ? ' ]' : ' }'}
        </Text>
      </summary>
      {isOpen && (
        <div className="json-children">
          {children.slice(0, maxChildren).map(([key, child]) => (
            <Node key={key} name={key} value={child} depth={depth + 1} />
          ))}
          {children.length > maxChildren && (
            <Text size="xs" c="dimmed">
              and {(children.length - maxChildren).toLocaleString()} more
            </Text>
          )}
        </div>
      )}
    </details>
  );
}

function literalOf(value: unknown): string {
  const text = JSON.stringify(value) ?? '';
  return text.length > 2_000 ? `${text.slice(0, 2_000)}…` : text;
}

/** The timing in the service, from its log, and in the browser. */
export function Timing({ answer }: { answer: ProxiedAnswer }) {
  const { headMs, totalMs, caller, logBefore } = answer;
  const { data: entry, isPending, isFetching } = useQuery(entryQuery(answer));
  const isAwaited = logBefore !== undefined && entry == null && (isPending || isFetching);
  return (
    <Stack gap="md">
      <Text size="sm">
        The first byte arrived after <b>{duration(headMs)}</b> and the last byte after{' '}
        <b>{duration(totalMs)}</b>, measured in this browser.
      </Text>
      {entry != null ? (
        <>
          <Phases operation={entry} />
          <Text size="sm">
            {entry.requests === 1 ? 'One request' : `${entry.requests} requests`} to the provider
            {entry.retries !== null && entry.retries > 0 && `, ${entry.retries} of them retries`}.{' '}
            <AnchorLink
              size="sm"
              to="/$environment/activity"
              params={{ environment: caller.environment }}
              search={{ operation: entry.id }}
            >
              Open the entry in the activity log
            </AnchorLink>
          </Text>
        </>
      ) : isAwaited ? (
        <Skeleton h={52} role="status" aria-label="Loading" />
      ) : (
        <Dimmed>The activity log has no entry for this call, so its phases are unknown.</Dimmed>
      )}
    </Stack>
  );
}
