import {
  Alert,
  Badge,
  Button,
  Card,
  Code,
  Group,
  NumberInput,
  Progress,
  SimpleGrid,
  Skeleton,
  Stack,
  Switch,
  TagsInput,
  Text,
  Title,
} from '@mantine/core';
import { useForm } from '@mantine/form';
import { notifications } from '@mantine/notifications';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useParams, useSearch } from '@tanstack/react-router';
import { type ReactNode, useState } from 'react';
import { Confirm } from '../../ui/Confirm.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { IconAlertTriangle, IconBookmark, IconDatabase, IconScissors } from '../../ui/icons.tsx';
import { ListTable } from '../../ui/ListTable.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { SaveBar } from '../../ui/SaveBar.tsx';
import { formatSize } from '../../ui/size.ts';
import { useNow } from '../../ui/time.ts';
import { CodeButton } from '../CodeButton.tsx';
import { connectionHeaders } from '../call-code.ts';
import { accountName } from '../connections/EndUser.tsx';
import { connectionQuery, datasetsQuery } from '../connections/queries.ts';
import { ExportMenu } from '../ExportMenu.tsx';
import { BackLink, connectionPage } from '../links.tsx';
import { PageTabs } from '../PageTabs.tsx';
import { Snippets } from '../Snippets.tsx';
import { keysQuery } from '../settings/keys/queries.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMay, useMayWrite } from '../sign-in/queries.ts';
import { useChange } from '../use-change.ts';
import { PruneDialog, type PruneTarget } from './PruneDialog.tsx';
import {
  type Consumer,
  consumersQuery,
  type Dataset,
  type DatasetAt,
  exportRecords,
  forgetConsumer,
  setDatasetSettings,
} from './queries.ts';
import { filtersOf, RecordsTab } from './RecordsTab.tsx';

/** One dataset: its records, consumers and settings. */
export function DatasetPage() {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const from = '/$environment/records/of/$integration/$id/$model';
  const { integration, id, model } = useParams({ from });
  const search = useSearch({ from });
  const { variant = 'base' } = search;
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
        <BackLink {...connectionPage(environment, at, 'records')}>
          Records of {connection === undefined ? id : accountName(connection)}
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
        dataset !== undefined && (
          <>
            <CodeButton>
              <Snippets
                title="Read the records, oldest change first"
                scopes={['records:read']}
                call={{
                  method: 'GET',
                  url: `${location.origin}/records?${new URLSearchParams({ model, variant })}`,
                  headers: connectionHeaders(at),
                }}
              />
            </CodeButton>
            {mayWrite && (
              <ExportMenu
                name={variant === 'base' ? model : `${model}-${variant}`}
                start={(format) => exportRecords(environment, { at, format, ...filtersOf(search) })}
              />
            )}
            {mayWrite && last !== null && (
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
            <EmptyState icon={<IconDatabase size={26} />} title="Unknown dataset">
              No records were ever saved as {model} for this connection.
            </EmptyState>
          ) : (
            <Stack gap="lg">
              <Counts dataset={dataset} />
              {dataset.delete_tracking === 'held' && <Held />}
              <PageTabs
                open={search.tab}
                kept={{ variant: search.variant }}
                tabs={[
                  {
                    name: 'records',
                    label: 'Records',
                    content: () => (
                      <RecordsTab
                        isPruning={target !== undefined}
                        at={at}
                        onPrune={
                          mayWrite
                            ? ({ cursor, id: record }) => setTarget({ cursor, name: `record ${record}` })
                            : undefined
                        }
                      />
                    ),
                  },
                  {
                    name: 'consumers',
                    label: 'Consumers',
                    content: () => <ConsumersTab at={at} mayWrite={mayWrite} />,
                  },
                  {
                    name: 'settings',
                    label: 'Settings',
                    content: () => <SettingsTab at={at} dataset={dataset} mayWrite={mayWrite} />,
                  },
                ]}
              />
            </Stack>
          )
        }
      </Loaded>
      {target !== undefined && (
        <PruneDialog key={target.cursor} at={at} target={target} onClose={() => setTarget(undefined)} />
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
      <Count name="Stored, encrypted">{formatSize(dataset.payload_bytes)}</Count>
    </SimpleGrid>
  );
}

function Count({ name, children }: { name: string; children: ReactNode }) {
  return (
    <Card padding="sm">
      <Dimmed>{name}</Dimmed>
      <Text fw={600} size="lg" className="wrap">
        {children}
      </Text>
    </Card>
  );
}

function Held() {
  return (
    <Alert color="orange" icon={<IconAlertTriangle size={18} />} title="A deletion is held">
      The last full sync would have deleted more records than this dataset allows, so it deleted none. If the
      provider returns the records again, run the sync again. If they are gone, choose Allow held deletion on
      the sync, or end the tracking in your own code with <code>"override": true</code>.
    </Alert>
  );
}

function Waiting() {
  return (
    <Stack gap="lg" role="status" aria-label="Loading">
      <SimpleGrid cols={{ base: 2, sm: 4 }} spacing="sm">
        {['Live', 'Deleted', 'Pruned', 'Stored, encrypted'].map((name) => (
          <Skeleton key={name} h={75} radius="md" />
        ))}
      </SimpleGrid>
      <Skeleton h={37} radius="md" />
      <Skeleton h={420} radius="md" />
    </Stack>
  );
}

/** The settings of a dataset for comparison, deletion guard and history. */
export function SettingsTab({
  at,
  dataset,
  mayWrite,
}: {
  at: DatasetAt;
  dataset: Dataset;
  mayWrite: boolean;
}) {
  const environment = useEnvironment();
  const queries = useQueryClient();
  const form = useForm({
    initialValues: valuesOf(dataset),
    validate: { percent: numberFault, number: numberFault },
  });
  const save = useMutation({
    mutationFn: (values: Values) =>
      setDatasetSettings(environment, {
        at,
        // Unchanged fields are not sent: a field shows a rounded share, and another user may have changed the
        // value.
        settings: {
          ...(form.isDirty('ignoreFields') && { ignore_fields: values.ignoreFields }),
          mass_delete: {
            ...(form.isDirty('percent') && { share: values.percent / 100 }),
            ...(form.isDirty('number') && { number: values.number }),
          },
          ...(form.isDirty('keepsPrevious') && { keep_previous: values.keepsPrevious }),
        },
      }),
    onSuccess: async (_, values) => {
      form.setInitialValues(values);
      form.resetDirty(values);
      notifications.show({ message: 'The settings are saved.', color: 'green' });
      await queries.invalidateQueries({ queryKey: datasetsQuery(environment, at).queryKey });
    },
  });
  const { percent, number } = form.values;
  const live = dataset.records;
  const held = Math.max(Math.floor((live * percent) / 100), number) + 1;
  return (
    <form onSubmit={form.onSubmit((values) => save.mutate(values))}>
      <Stack maw={720}>
        {!mayWrite && (
          <Dimmed>Your role is read-only. A developer or an owner can change these settings.</Dimmed>
        )}
        <Card>
          <Stack gap="xs">
            <Title order={2}>Last change</Title>
            {mayWrite ? (
              <Switch
                label="Keep the previous payload of a record"
                description="The previous payload is kept, encrypted, until the next change or until the record is pruned. This approximately doubles the storage."
                {...form.getInputProps('keepsPrevious', { type: 'checkbox' })}
              />
            ) : (
              <Text size="sm">
                {dataset.keep_previous
                  ? 'The previous payload is kept with each change.'
                  : 'The previous payload is not kept.'}
              </Text>
            )}
          </Stack>
        </Card>
        <Card>
          <Stack gap="xs">
            <Title order={2}>Change detection</Title>
            <TagsInput
              label="Ignored fields"
              description="Top-level fields that are ignored when records are compared, such as fetched_at. Press Enter after each name."
              placeholder={mayWrite ? 'Add a field' : ''}
              readOnly={!mayWrite}
              maxTags={100}
              {...form.getInputProps('ignoreFields')}
            />
          </Stack>
        </Card>
        <Card>
          <Stack gap="xs">
            <Title order={2}>Guard against mass deletion</Title>
            <Dimmed>
              A full sync with an error finds few records and would delete the others. Its deletions are held
              if they exceed both limits.
            </Dimmed>
            <Group align="flex-end">
              <NumberInput
                label="Share of the live records"
                suffix=" %"
                min={0}
                max={100}
                decimalScale={4}
                readOnly={!mayWrite}
                {...form.getInputProps('percent')}
                flex="1 1 160px"
              />
              <NumberInput
                label="Number of records"
                min={0}
                allowDecimal={false}
                thousandSeparator=","
                readOnly={!mayWrite}
                {...form.getInputProps('number')}
                flex="1 1 160px"
              />
            </Group>
            <Text size="sm">
              {percent >= 100 || held > live
                ? `With ${live.toLocaleString()} live records, no deletion is ever held.`
                : `With ${live.toLocaleString()} live records, ${held.toLocaleString()} deletions or more are held.`}
            </Text>
          </Stack>
        </Card>
        {save.isError && <FaultNotice error={save.error} />}
        {mayWrite && <SaveBar isDirty={form.isDirty()} isSaving={save.isPending} onUndo={form.reset} />}
      </Stack>
    </form>
  );
}

type Values = { ignoreFields: string[]; percent: number; number: number; keepsPrevious: boolean };

/** An empty field is not a number. */
function numberFault(value: unknown): string | null {
  return typeof value === 'number' ? null : 'Enter a number.';
}

function valuesOf(dataset: Dataset): Values {
  return {
    ignoreFields: dataset.ignore_fields,
    percent: Math.round(dataset.mass_delete.share * 1e6) / 1e4,
    number: dataset.mass_delete.number,
    keepsPrevious: dataset.keep_previous,
  };
}

/** After this time without an acknowledgement, policies no longer wait for a consumer; see docs/guides/read-records.md. */
const staleAfterMs = 30 * 86_400_000;

/** The consumers of a dataset, and how far behind they are. */
function ConsumersTab({ at, mayWrite }: { at: DatasetAt; mayWrite: boolean }) {
  const environment = useEnvironment();
  const nowMs = useNow();
  const consumers = useQuery({ ...consumersQuery(environment, at), refetchInterval: 10_000 });
  const may = useMay();
  const { data: keys = [] } = useQuery({ ...keysQuery(environment), enabled: may('keys') });
  const nameOf = ({ key_id }: Consumer) => keys.find(({ id }) => id === key_id)?.name;
  const [leaving, setLeaving] = useState<string>();
  const forget = useChange((name: string) => forgetConsumer(environment, { at, name }), {
    stale: [consumersQuery(environment, at).queryKey],
  });
  return (
    <Stack>
      <Loaded query={consumers}>
        {(all) => {
          const own = all.filter(({ model, variant }) => model === at.model && variant === at.variant);
          if (own.length === 0) return <Empty />;
          const max = Math.max(...own.map(({ behind }) => behind), 1);
          return (
            <ListTable
              rows={own}
              keyOf={(consumer) => consumer.name}
              columns={[
                {
                  title: 'Consumer',
                  cell: (consumer) => (
                    <>
                      <Group gap={6}>
                        <Text span fw={550} size="sm" className="wrap">
                          {consumer.name}
                        </Text>
                        {isStale(consumer, nowMs) && <Badge color="orange">stale</Badge>}
                        {consumer.stalled_since !== null && <Badge color="red">stalled</Badge>}
                      </Group>
                      {consumer.stalled_since !== null && (
                        <Text size="xs" c="dimmed">
                          stalled since {dayOf(consumer.stalled_since)}: it acknowledges the same cursor
                          repeatedly; retention policies wait for it
                        </Text>
                      )}
                      {isStale(consumer, nowMs) && (
                        <Text size="xs" c="dimmed">
                          no acknowledgement for 30 days: retention policies no longer wait for it
                        </Text>
                      )}
                      <Group gap={6} hiddenFrom="sm" mt={4}>
                        <Owner keyId={consumer.key_id} name={nameOf(consumer)} />
                        <RelativeTime at={consumer.acknowledged_at} size="sm" />
                      </Group>
                    </>
                  ),
                },
                {
                  title: 'Behind',
                  miw: 120,
                  cell: (consumer) => <Lag behind={consumer.behind} max={max} name={consumer.name} />,
                },
                {
                  title: 'Key',
                  visibleFrom: 'sm',
                  cell: (consumer) => <Owner keyId={consumer.key_id} name={nameOf(consumer)} />,
                },
                {
                  title: 'Last acknowledgement',
                  visibleFrom: 'sm',
                  cell: (consumer) => <RelativeTime at={consumer.acknowledged_at} size="sm" />,
                },
                mayWrite && {
                  label: 'Actions',
                  ta: 'right',
                  cell: (consumer) => (
                    <Button
                      size="compact-sm"
                      variant="subtle"
                      color="red"
                      onClick={() => setLeaving(consumer.name)}
                      aria-label={`Forget ${consumer.name}`}
                    >
                      Forget
                    </Button>
                  ),
                },
              ]}
            />
          );
        }}
      </Loaded>
      <Confirm
        title={`Forget ${leaving ?? ''}?`}
        act="Forget consumer"
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

/** The key that owns the consumer; by name if the user may read keys. */
function Owner({ keyId, name }: { keyId: number | null; name: string | undefined }) {
  if (keyId === null)
    return <Dimmed title="The next key that acknowledges the present cursor becomes the owner">none</Dimmed>;
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
    <EmptyState icon={<IconBookmark size={26} />} title="No consumers">
      A consumer is a stored cursor. Your application sets it with <Code>PUT /records/consumers/billing</Code>{' '}
      when it has processed changes. This page shows how far it is behind, and retention policies wait for it.
    </EmptyState>
  );
}

/** `15 October`. */
function dayOf(at: string): string {
  return new Date(at).toLocaleDateString('en-GB', { day: 'numeric', month: 'long' });
}

/** As the service defines it: no acknowledgement, with changes left to read. */
function isStale({ behind, acknowledged_at }: Consumer, nowMs: number): boolean {
  return behind > 0 && nowMs - Date.parse(acknowledged_at) > staleAfterMs;
}
