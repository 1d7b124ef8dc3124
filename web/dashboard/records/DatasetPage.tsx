import { Alert, Badge, Button, Card, Group, SimpleGrid, Skeleton, Stack, Tabs, Text } from '@mantine/core';
import { IconAlertTriangle, IconDatabase, IconScissors } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { type ReactNode, useState } from 'react';
import { BackLink } from '../../ui/BackLink.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { spellSize } from '../../ui/size.ts';
import { TabRow } from '../../ui/TabRow.tsx';
import { connectionQuery, datasetsQuery } from '../connections/queries.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { ConsumersTab } from './ConsumersTab.tsx';
import { ExportButton } from './ExportButton.tsx';
import { PruneDialog, type PruneTarget } from './PruneDialog.tsx';
import type { Dataset, DatasetAt } from './queries.ts';
import { RecordsTab } from './RecordsTab.tsx';
import { SettingsTab } from './SettingsTab.tsx';

/** One dataset: what is in it, who follows it, and how it is kept. */
export function DatasetPage() {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const from = '/$environment/records/of/$integration/$id/$model';
  const { integration, id, model } = useParams({ from });
  const { variant = 'base', tab = 'records' } = useSearch({ from });
  const navigate = useNavigate({ from });
  const at: DatasetAt = { integration, id, model, variant };
  const [target, setTarget] = useState<PruneTarget>();
  const { data: connection } = useQuery(connectionQuery(environment, at));
  const datasets = useQuery({ ...datasetsQuery(environment, at), refetchInterval: 10_000 });
  const dataset = datasets.data?.find((one) => one.model === model && one.variant === variant);
  const { last_cursor: last } = dataset ?? { last_cursor: null };
  return (
    <Page
      title={model}
      before={
        <BackLink
          link={(props) => (
            <Link
              to="/$environment/records/of/$integration/$id"
              params={{ environment, integration, id }}
              {...props}
            />
          )}
        >
          Records of {connection?.account?.email ?? id}
        </BackLink>
      }
      about={
        <Group gap={6}>
          {integration}
          {variant !== 'base' && <Badge color="gray">{variant}</Badge>}
          {dataset !== undefined && (
            <span>
              · last change <RelativeTime at={dataset.last_modified_at} />
            </span>
          )}
        </Group>
      }
      actions={
        mayWrite &&
        dataset !== undefined && (
          <>
            <ExportButton environment={environment} at={at} />
            {last !== null && (
              <Button
                variant="default"
                leftSection={<IconScissors size={16} />}
                onClick={() => setTarget({ cursor: last, name: 'the latest record' })}
              >
                Prune all
              </Button>
            )}
          </>
        )
      }
    >
      <Loaded query={datasets} loading={<Waiting />}>
        {() =>
          dataset === undefined ? (
            <EmptyState icon={<IconDatabase size={26} />} title="There is no such dataset">
              Nothing was ever saved as {model} for this connection.
            </EmptyState>
          ) : (
            <Stack gap="lg">
              <Counts dataset={dataset} />
              {dataset.delete_tracking === 'held' && <Held />}
              <Tabs
                value={tab}
                onChange={(next) =>
                  void navigate({
                    search: ({ variant: own }) => ({
                      variant: own,
                      tab: next === 'consumers' || next === 'settings' ? next : undefined,
                    }),
                  })
                }
                keepMounted={false}
              >
                <TabRow open={tab}>
                  <Tabs.Tab value="records">Records</Tabs.Tab>
                  <Tabs.Tab value="consumers">Consumers</Tabs.Tab>
                  <Tabs.Tab value="settings">Settings</Tabs.Tab>
                </TabRow>
                <Tabs.Panel value="records">
                  <RecordsTab
                    environment={environment}
                    at={at}
                    onPrune={
                      mayWrite
                        ? ({ cursor, id: record }) => setTarget({ cursor, name: `record ${record}` })
                        : undefined
                    }
                  />
                </Tabs.Panel>
                <Tabs.Panel value="consumers">
                  <ConsumersTab environment={environment} at={at} mayWrite={mayWrite} />
                </Tabs.Panel>
                <Tabs.Panel value="settings">
                  <SettingsTab environment={environment} at={at} dataset={dataset} mayWrite={mayWrite} />
                </Tabs.Panel>
              </Tabs>
            </Stack>
          )
        }
      </Loaded>
      {target !== undefined && (
        <PruneDialog
          key={target.cursor}
          environment={environment}
          at={at}
          target={target}
          onClose={() => setTarget(undefined)}
        />
      )}
    </Page>
  );
}

function Counts({ dataset }: { dataset: Dataset }) {
  return (
    <SimpleGrid cols={{ base: 2, sm: 4 }} spacing="sm">
      <Count name="Live">{dataset.records.toLocaleString()}</Count>
      <Count name="Deleted">{dataset.deleted.toLocaleString()}</Count>
      <Count name="Pruned">{dataset.pruned.toLocaleString()}</Count>
      <Count name="Payloads">{spellSize(dataset.payload_bytes)}</Count>
    </SimpleGrid>
  );
}

function Count({ name, children }: { name: string; children: ReactNode }) {
  return (
    <Card padding="sm">
      <Text size="sm" c="dimmed">
        {name}
      </Text>
      <Text fw={600} size="lg" className="wrap">
        {children}
      </Text>
    </Card>
  );
}

function Held() {
  return (
    <Alert color="orange" icon={<IconAlertTriangle size={18} />} title="A deletion is held back">
      The last full sync found so few records that more would have been deleted than this dataset allows, so
      none was. If the records are back, run the sync again. If they are gone: for a function, choose Allow
      held deletion on its sync; for your own code, end the tracking with <code>"override": true</code>.
    </Alert>
  );
}

function Waiting() {
  return (
    <Stack gap="lg" role="status" aria-label="Loading">
      <SimpleGrid cols={{ base: 2, sm: 4 }} spacing="sm">
        {['Live', 'Deleted', 'Pruned', 'Payloads'].map((name) => (
          <Skeleton key={name} h={75} radius="md" />
        ))}
      </SimpleGrid>
      <Skeleton h={37} radius="md" />
      <Skeleton h={420} radius="md" />
    </Stack>
  );
}
