import { Code, Drawer, Group, Stack, Table, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Copyable } from '../../ui/Copyable.tsx';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { IconTerminal2 } from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { codeOf } from '../call-code.ts';
import { AnchorLink, ButtonLink, connectionPage, integrationPage, runPage } from '../links.tsx';
import { emptyForm } from '../playground/request.ts';
import { callOf } from '../playground/snippets.ts';
import { useEnvironment } from '../shell/environment.ts';
import { duration, Outcome, Phases } from './OperationsTable.tsx';
import { operationQuery, type WholeOperation } from './queries.ts';

/** One operation in full, beside the list. */
export function OperationDrawer({ id, onClose }: { id: string | undefined; onClose: () => void }) {
  const environment = useEnvironment();
  const query = useQuery({ ...operationQuery(environment, id ?? ''), enabled: id !== undefined });
  return (
    <Drawer opened={id !== undefined} onClose={onClose} title="Operation">
      <Loaded query={query}>{(operation) => <Whole operation={operation} />}</Loaded>
    </Drawer>
  );
}

function Whole({ operation }: { operation: WholeOperation }) {
  const { messages, details } = operation;
  return (
    <Stack>
      <Group gap="xs">
        <Title order={3}>{operation.type}</Title>
        <Outcome operation={operation} />
        {operation.error_code !== null && <Text size="sm">{operation.error_code}</Text>}
        <Dimmed>
          <RelativeTime at={operation.created_at} />
          {operation.duration_ms !== null && `, took ${duration(operation.duration_ms)}`}
        </Dimmed>
      </Group>
      {operation.path !== null && (
        <Copyable value={`${operation.method} ${operation.path}`} what="the request" />
      )}
      <Again operation={operation} />
      <Phases operation={operation} />
      {messages.length > 0 && <Messages messages={messages} />}
      <Facts operation={operation} />
      {Object.keys(details).length > 0 && (
        <Stack gap={6}>
          <Title order={4}>Details</Title>
          <Code block tabIndex={0}>
            {JSON.stringify(details, null, 2)}
          </Code>
        </Stack>
      )}
    </Stack>
  );
}

/**
 * Repeats a proxied call with curl or in the playground; bodies and headers are not logged. For a run, a link to its
 * page.
 */
function Again({ operation }: { operation: WholeOperation }) {
  const environment = useEnvironment();
  const { type, method, path, integration_id: integration, connection_id: connection } = operation;
  if (type === 'run' && operation.request_id !== null) {
    return (
      <AnchorLink size="sm" {...runPage(environment, operation.request_id ?? '')}>
        Open the run
      </AnchorLink>
    );
  }
  if (type !== 'proxy' || method === null || path === null || integration === null || connection === null) {
    return null;
  }
  const form = { ...emptyForm, method, path };
  return (
    <Group gap="xs">
      <CopyButton
        value={codeOf.curl(callOf(form, { baseUrl: location.origin, integration, connection }))}
        what="the call as curl"
        label="Copy as curl"
      />
      <ButtonLink
        variant="default"
        leftSection={<IconTerminal2 size={16} />}
        to="/$environment/playground"
        params={{ environment }}
        search={{ integration, connection, method, path }}
      >
        Open in the playground
      </ButtonLink>
    </Group>
  );
}

function Messages({ messages }: { messages: WholeOperation['messages'] }) {
  const colorOf = (level: string) => (level === 'error' ? 'red' : level === 'warn' ? 'yellow' : 'teal');
  return (
    <Stack gap={6}>
      <Title order={4}>Messages</Title>
      <Stack component="ol" gap={8} m={0} p={0} style={{ listStyle: 'none' }}>
        {messages.map(({ level, message, details }, at) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: messages stand in their order and never move
          <Stack component="li" key={at} gap={2}>
            <Text size="sm" className="wrap">
              <Text span inherit c={`var(--mantine-color-${colorOf(level)}-light-color)`} fw={600}>
                {level}
              </Text>{' '}
              {message}
            </Text>
            {Object.keys(details).length > 0 && (
              <Text size="xs" c="dimmed" ff="monospace" className="wrap">
                {Object.entries(details)
                  .map(([name, value]) => `${name}: ${String(value)}`)
                  .join(', ')}
              </Text>
            )}
          </Stack>
        ))}
      </Stack>
    </Stack>
  );
}

function Facts({ operation }: { operation: WholeOperation }) {
  const environment = useEnvironment();
  const { integration_id: integration, connection_id: connection, request_id: requestId } = operation;
  const facts: [string, ReactNode][] = [
    [
      'Integration',
      integration && (
        <AnchorLink size="sm" {...integrationPage(environment, integration)}>
          {integration}
        </AnchorLink>
      ),
    ],
    [
      'Connection',
      connection &&
        (integration ? (
          <AnchorLink
            size="sm"
            className="wrap"
            {...connectionPage(environment, { integration, id: connection })}
          >
            {operation.account_email ?? connection}
          </AnchorLink>
        ) : (
          connection
        )),
    ],
    [
      'Connection ID',
      operation.account_email === null || connection === null ? null : (
        <Copyable key="connection" value={connection} what="the connection ID" />
      ),
    ],
    ['Called by', operation.actor],
    ['Requests to the provider', numbered(operation.requests)],
    ['Retries among them', numbered(operation.retries)],
    ['Bytes sent', numbered(operation.request_bytes)],
    ['Bytes received', numbered(operation.answer_bytes)],
    ['Request ID', requestId && <Copyable value={requestId} what="the request ID" />],
    ['Operation ID', <Copyable key="id" value={operation.id} what="the operation ID" />],
  ];
  return (
    <Table layout="fixed">
      <Table.Tbody>
        {facts
          .filter(([, value]) => value !== null)
          .map(([name, value]) => (
            <Table.Tr key={name}>
              <Table.Th w={{ base: 130, xs: 180 }} fw={400} c="dimmed">
                {name}
              </Table.Th>
              <Table.Td className="wrap">{value}</Table.Td>
            </Table.Tr>
          ))}
      </Table.Tbody>
    </Table>
  );
}

function numbered(value: number | null): string | null {
  return value === null ? null : value.toLocaleString();
}
