import { Anchor, Badge, Card, Group, Stack, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { Fault } from '../../api/client.ts';
import { Loaded } from '../../ui/Loaded.tsx';
import type { At } from '../connections/queries.ts';
import { useMay } from '../sign-in/queries.ts';
import { FunctionLink } from './FunctionLink.tsx';
import { functionsQuery, type Sync, syncsQuery } from './queries.ts';
import { SyncBadge } from './StateBadge.tsx';
import { SyncActs } from './SyncActs.tsx';
import { SyncError } from './SyncError.tsx';
import { LastRun, NextTime } from './SyncsTable.tsx';

type Shown = { name: string; variant: string; sync: Sync | undefined };

/** The syncs of a connection, for its own page: those that were never started, too. */
export function SyncsCard({ environment, at }: { environment: string; at: At }) {
  const mayWrite = useMay()('functions:write');
  const functions = useQuery(
    functionsQuery(environment, { provider_config_key: at.integration, type: 'sync', limit: 100 }),
  );
  const syncs = useQuery(
    syncsQuery(environment, { provider_config_key: at.integration, connection_id: at.id, limit: 200 }),
  );
  const isOff =
    functions.data === undefined &&
    functions.error instanceof Fault &&
    functions.error.code === 'functions_off';
  return (
    <Card component="section" aria-label="Syncs">
      <Group justify="space-between" mb="xs">
        <Title order={2}>Syncs</Title>
        {!isOff && (
          <Anchor
            size="sm"
            renderRoot={(props) => (
              <Link
                to="/$environment/functions"
                params={{ environment }}
                search={{ tab: 'runs', integration: at.integration, connection: at.id }}
                {...props}
              />
            )}
          >
            Its runs
          </Anchor>
        )}
      </Group>
      {isOff ? (
        <Text c="dimmed" size="sm">
          Functions are turned off in this service.
        </Text>
      ) : (
        <Loaded query={functions}>
          {({ data: deployed }) =>
            deployed.length === 0 ? (
              <Text c="dimmed" size="sm">
                No sync is deployed for {at.integration}. What your own code fetches it can save with{' '}
                <code>POST /records</code>;{' '}
                <Anchor
                  inherit
                  underline="always"
                  renderRoot={(props) => (
                    <Link to="/$environment/functions" params={{ environment }} search={{}} {...props} />
                  )}
                >
                  functions
                </Anchor>{' '}
                do both.
              </Text>
            ) : (
              <Loaded query={syncs}>
                {(known) => (
                  <Stack gap="sm">
                    {shownOf(
                      deployed.map(({ name }) => name),
                      known.syncs,
                    ).map((one) => (
                      <Row
                        key={`${one.name}:${one.variant}`}
                        environment={environment}
                        at={at}
                        of={one}
                        mayWrite={mayWrite}
                      />
                    ))}
                  </Stack>
                )}
              </Loaded>
            )
          }
        </Loaded>
      )}
    </Card>
  );
}

function Row({
  environment,
  at,
  of: { name, variant, sync },
  mayWrite,
}: {
  environment: string;
  at: At;
  of: Shown;
  mayWrite: boolean;
}) {
  const { integration, id: connection } = at;
  return (
    <Group wrap="nowrap" align="flex-start" justify="space-between" gap="sm">
      <Stack gap={4} miw={0}>
        <Group gap={8}>
          <Anchor
            size="sm"
            fw={550}
            className="wrap"
            renderRoot={(looks) => (
              <FunctionLink environment={environment} at={{ integration, type: 'sync', name }} {...looks} />
            )}
          >
            {name}
          </Anchor>
          {variant !== 'base' && <Badge color="gray">{variant}</Badge>}
          <SyncBadge sync={sync} />
        </Group>
        {sync !== undefined && (
          <>
            <Group gap="md">
              <Group gap={6}>
                <Text size="sm" c="dimmed">
                  Last
                </Text>
                <LastRun sync={sync} environment={environment} />
              </Group>
              <Text size="sm">
                <Text span inherit c="dimmed">
                  Next{' '}
                </Text>
                <NextTime sync={sync} />
              </Text>
            </Group>
            <SyncError sync={sync} />
          </>
        )}
      </Stack>
      {mayWrite && (
        <SyncActs environment={environment} at={{ integration, connection, name, variant }} sync={sync} />
      )}
    </Group>
  );
}

/** By name and variant; a function that has no sync here yet stands as one that was not started. */
function shownOf(deployed: readonly string[], syncs: readonly Sync[]): Shown[] {
  const known = syncs.map((sync) => ({ name: sync.function, variant: sync.variant, sync }));
  const others = deployed
    .filter((name) => !known.some((one) => one.name === name))
    .map((name) => ({ name, variant: 'base', sync: undefined }));
  return [...known, ...others].sort(
    (a, b) => a.name.localeCompare(b.name) || a.variant.localeCompare(b.variant),
  );
}
