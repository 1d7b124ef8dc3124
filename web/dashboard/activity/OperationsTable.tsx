import { Badge, Box, Group, Progress, Stack, Text, Tooltip } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { ListTable } from '../../ui/ListTable.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { AnchorLink, connectionPage } from '../links.tsx';
import type { ActivitySearch } from '../search.ts';
import { useEnvironment } from '../shell/environment.ts';
import type { Operation } from './queries.ts';

/** Operations, newest first. Each row is a link to the operation and keeps the filters. */
export function OperationsTable({
  operations,
  search = {},
  isOfConnection = false,
}: {
  operations: Operation[];
  search?: ActivitySearch;
  /** Whether all are of one connection, which the page names. */
  isOfConnection?: boolean;
}) {
  const environment = useEnvironment();
  return (
    <ListTable
      rows={operations}
      keyOf={(operation) => operation.id}
      rowClass="fill-row"
      columns={[
        {
          title: 'Outcome',
          cell: (operation) => (
            <>
              <Outcome operation={operation} />
              <Text
                size="xs"
                c="dimmed"
                truncate
                maw={{ base: 96, lg: 168 }}
                title={operation.error_code ?? undefined}
              >
                {operation.error_code}
              </Text>
            </>
          ),
        },
        {
          title: 'What',
          w: '100%',
          maw: 0,
          miw: { base: 110, xs: 200 },
          cell: (operation) => (
            <>
              <Link
                className="fill-link"
                to="/$environment/activity"
                params={{ environment }}
                search={{ ...search, operation: operation.id }}
              >
                <What operation={operation} />
              </Link>
              {!isOfConnection && (
                <Text size="xs" c="dimmed" truncate hiddenFrom="md">
                  {operation.account_email ?? operation.connection_id}
                </Text>
              )}
            </>
          ),
        },
        {
          title: 'Duration',
          ta: 'right',
          visibleFrom: 'sm',
          className: 'unbroken',
          cell: (operation) => (operation.duration_ms === null ? '' : duration(operation.duration_ms)),
        },
        !isOfConnection && {
          title: 'Connection',
          maw: 200,
          visibleFrom: 'md',
          cell: ({ integration_id: integration, connection_id: id, account_email: email }) =>
            id !== null && (
              <Text size="sm" truncate title={email === null ? id : `${email}, ${id}`}>
                {integration === null ? (
                  id
                ) : (
                  <AnchorLink inherit className="above" {...connectionPage(environment, { integration, id })}>
                    {email ?? id}
                  </AnchorLink>
                )}
              </Text>
            ),
        },
        {
          title: 'When',
          className: 'unbroken',
          cell: (operation) => (
            <Box pos="relative" w="fit-content">
              <RelativeTime at={operation.created_at} size="sm" />
            </Box>
          ),
        },
      ]}
    />
  );
}

function What({ operation }: { operation: Operation }) {
  return (
    <Group gap={6} miw={0}>
      <Badge
        color="gray"
        flex="none"
        maw="100%"
        title={operation.type}
        {...(operation.type === 'proxy' && { visibleFrom: 'sm' })}
      >
        {operation.type}
      </Badge>
      {operation.path !== null && (
        <Text
          size="sm"
          ff="monospace"
          truncate
          flex="1 1 120px"
          title={`${operation.method} ${operation.path}`}
        >
          {operation.method} {operation.path}
        </Text>
      )}
    </Group>
  );
}

export function Outcome({ operation }: { operation: Operation }) {
  const { status, http_status: httpStatus } = operation;
  const isGood = status === 'success';
  return (
    <Badge color={isGood ? 'green' : 'red'} miw="max-content">
      {httpStatus ?? (isGood ? 'success' : 'failed')}
    </Badge>
  );
}

/** "412 ms", "1.2 s". */
export function duration(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 100_000 ? 1 : 0)} s`;
}

type Timed = Pick<Operation, 'credentials_ms' | 'quota_ms' | 'connect_ms' | 'first_byte_ms' | 'body_ms'>;

/** The duration of each phase of a proxied call; nothing if the phases are unknown. */
export function Phases({ operation }: { operation: Timed }) {
  const phases = [
    { name: 'credentials', ms: operation.credentials_ms, color: 'violet' },
    { name: 'quota', ms: operation.quota_ms, color: 'yellow' },
    { name: 'connect', ms: operation.connect_ms, color: 'teal' },
    { name: 'first byte', ms: operation.first_byte_ms, color: 'trellis' },
    { name: 'body', ms: operation.body_ms, color: 'cyan' },
  ].filter((phase): phase is typeof phase & { ms: number } => phase.ms !== null && phase.ms > 0);
  const total = phases.reduce((sum, { ms }) => sum + ms, 0);
  if (total === 0) return null;
  return (
    <Stack gap={6} role="group" aria-label="Phases">
      <Progress.Root size={18}>
        {phases.map(({ name, ms, color }) => (
          <Tooltip key={name} label={`${name}: ${duration(ms)}`}>
            <Progress.Section
              value={(ms / total) * 100}
              color={color}
              aria-label={`${name}: ${duration(ms)}`}
            />
          </Tooltip>
        ))}
      </Progress.Root>
      <Group gap="md">
        {phases.map(({ name, ms, color }) => (
          <Text key={name} size="sm">
            <Text span c={`${color}.6`} aria-hidden>
              ■
            </Text>{' '}
            {name} {duration(ms)}
          </Text>
        ))}
      </Group>
    </Stack>
  );
}
