import { Badge, Button, Code, Group, Progress, Stack, Table, Text } from '@mantine/core';
import { IconBookmark } from '@tabler/icons-react';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { Confirm } from '../../ui/Confirm.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { useNow } from '../../ui/time.ts';
import { keysQuery } from '../settings/keys/queries.ts';
import { useMay } from '../sign-in/queries.ts';
import { type Consumer, consumersQuery, type DatasetAt, forgetConsumer } from './queries.ts';

/** How long a consumer may say nothing before no policy waits for it; docs/records.md. */
const staleAfterMs = 30 * 86_400_000;

/** Who follows a dataset, and how far behind. */
export function ConsumersTab({
  environment,
  at,
  mayWrite,
}: {
  environment: string;
  at: DatasetAt;
  mayWrite: boolean;
}) {
  const nowMs = useNow();
  const consumers = useQuery({ ...consumersQuery(environment, at), refetchInterval: 10_000 });
  const may = useMay();
  const { data: keys = [] } = useQuery({ ...keysQuery(environment), enabled: may('keys') });
  const nameOf = ({ key_id }: Consumer) => keys.find(({ id }) => id === key_id)?.name;
  const [leaving, setLeaving] = useState<string>();
  const queries = useQueryClient();
  const forget = useMutation({
    mutationFn: (name: string) => forgetConsumer(environment, { at, name }),
    onSuccess: () => queries.invalidateQueries({ queryKey: consumersQuery(environment, at).queryKey }),
  });
  return (
    <Stack>
      <Loaded query={consumers}>
        {(all) => {
          const own = all.filter(({ model, variant }) => model === at.model && variant === at.variant);
          if (own.length === 0) return <Empty />;
          const max = Math.max(...own.map(({ behind }) => behind), 1);
          return (
            <Table.ScrollContainer minWidth={300} className="framed">
              <Table verticalSpacing="sm" horizontalSpacing="md">
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>Consumer</Table.Th>
                    <Table.Th>Behind</Table.Th>
                    <Table.Th visibleFrom="sm">Key</Table.Th>
                    <Table.Th visibleFrom="sm">Last acknowledgement</Table.Th>
                    {mayWrite && <Table.Th aria-label="Actions" />}
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {own.map((consumer) => (
                    <Table.Tr key={consumer.name}>
                      <Table.Td>
                        <Group gap={6}>
                          <Text span fw={550} size="sm" className="wrap">
                            {consumer.name}
                          </Text>
                          {isStale(consumer, nowMs) && <Badge color="orange">stale</Badge>}
                          {consumer.stalled_since !== null && <Badge color="red">stalled</Badge>}
                        </Group>
                        {consumer.stalled_since !== null && (
                          <Text size="xs" c="dimmed">
                            stalled since {dayOf(consumer.stalled_since)}: acknowledges the same cursor again
                            and again; retention policies wait for it
                          </Text>
                        )}
                        {isStale(consumer, nowMs) && (
                          <Text size="xs" c="dimmed">
                            silent for 30 days: no retention policy waits for it
                          </Text>
                        )}
                        <Group gap={6} hiddenFrom="sm" mt={4}>
                          <Owner keyId={consumer.key_id} name={nameOf(consumer)} />
                          <RelativeTime at={consumer.acknowledged_at} size="sm" />
                        </Group>
                      </Table.Td>
                      <Table.Td miw={120}>
                        <Lag behind={consumer.behind} max={max} name={consumer.name} />
                      </Table.Td>
                      <Table.Td visibleFrom="sm">
                        <Owner keyId={consumer.key_id} name={nameOf(consumer)} />
                      </Table.Td>
                      <Table.Td visibleFrom="sm">
                        <RelativeTime at={consumer.acknowledged_at} size="sm" />
                      </Table.Td>
                      {mayWrite && (
                        <Table.Td ta="right">
                          <Button
                            size="compact-sm"
                            variant="subtle"
                            color="red"
                            onClick={() => setLeaving(consumer.name)}
                            aria-label={`Forget ${consumer.name}`}
                          >
                            Forget
                          </Button>
                        </Table.Td>
                      )}
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </Table.ScrollContainer>
          );
        }}
      </Loaded>
      <Confirm
        title={`Forget ${leaving ?? ''}?`}
        act="Forget it"
        given={leaving}
        mutation={forget}
        onClose={() => setLeaving(undefined)}
      >
        <Text>
          The stored cursor is removed. A program that keeps no cursor of its own starts again at the first
          record. Retention policies no longer wait for it, so they may remove records that it has not read.
          No record is removed now.
        </Text>
      </Confirm>
    </Stack>
  );
}

/** The key that the consumer belongs to; its name where the user may see keys. */
function Owner({ keyId, name }: { keyId: number | null; name: string | undefined }) {
  if (keyId === null)
    return (
      <Text size="sm" c="dimmed" title="The next key that acknowledges the present cursor becomes the owner">
        none
      </Text>
    );
  return (
    <Text size="sm" className={name === undefined ? 'unbroken' : 'wrap'}>
      {name ?? `key ${keyId}`}
    </Text>
  );
}

function Lag({ behind, max, name }: { behind: number; max: number; name: string }) {
  return (
    <Stack gap={4}>
      <Text size="sm">{behind === 0 ? 'up to date' : behind.toLocaleString()}</Text>
      <Progress
        value={(behind / max) * 100}
        color={behind === 0 ? 'green' : 'yellow'}
        size="sm"
        aria-label={`How far ${name} is behind`}
      />
    </Stack>
  );
}

function Empty() {
  return (
    <EmptyState icon={<IconBookmark size={26} />} title="Nobody follows this dataset by name">
      A consumer is a bookmark: your application says with <Code>PUT /records/consumers/billing</Code> up to
      which cursor it has taken the changes, sees here how far it is behind, and a retention policy waits for
      it.
    </EmptyState>
  );
}

/** `15 October`. */
function dayOf(at: string): string {
  return new Date(at).toLocaleDateString('en-GB', { day: 'numeric', month: 'long' });
}

/** As the service judges it: silent, with changes waiting. */
function isStale({ behind, acknowledged_at }: Consumer, nowMs: number): boolean {
  return behind > 0 && nowMs - Date.parse(acknowledged_at) > staleAfterMs;
}
