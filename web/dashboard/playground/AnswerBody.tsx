import { Button, Code, Group, SegmentedControl, Stack, Table, Text } from '@mantine/core';
import { IconDownload } from '@tabler/icons-react';
import { useEffect, useMemo, useState } from 'react';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { maxTextShown, sizeOf, type TableOf, tableOf } from './answer.ts';
import { JsonTree } from './JsonTree.tsx';
import type { ProxiedAnswer } from './queries.ts';

/** The body as a table, a tree or text; what is too long for a page is cut and can be downloaded whole. */
export function AnswerBody({ answer }: { answer: ProxiedAnswer }) {
  const { body, bytes } = answer;
  const table = useMemo(() => (body.kind === 'json' ? tableOf(body.value) : undefined), [body]);
  const views = [
    ...(table === undefined ? [] : ['Table']),
    ...(body.kind === 'json' ? ['Tree'] : []),
    'Text',
  ] as const;
  const [chosen, setChosen] = useState<string>();
  if (body.kind === 'empty') return <Text c="dimmed">The answer has no body.</Text>;
  if (body.kind === 'binary') {
    return (
      <Group>
        <Text>{sizeOf(bytes.size)} of bytes that are no text.</Text>
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
            <Text size="sm" c="dimmed">
              The first {maxTextShown.toLocaleString()} of {text.length.toLocaleString()} characters. The
              download has all of them.
            </Text>
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
        <Text size="sm" c="dimmed">
          <code>{name}</code>
        </Text>
      )}
      <Table.ScrollContainer
        minWidth={200}
        maxHeight={520}
        className="framed"
        scrollAreaProps={{
          offsetScrollbars: false,
          viewportProps: { tabIndex: 0, 'aria-label': 'The answer as a table' },
        }}
      >
        <Table stickyHeader horizontalSpacing="sm" verticalSpacing={6} withColumnBorders>
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
      {cut.length > 0 && (
        <Text size="sm" c="dimmed">
          {cut.join(', ')}. The download has the whole answer.
        </Text>
      )}
    </Stack>
  );
}

/** The bytes as they came. */
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
