import { Alert, Badge, Button, Card, Group, Loader, Radio, Stack, Table, Text, Title } from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate, useParams } from '@tanstack/react-router';
import { useState } from 'react';
import { Confirm } from '../../ui/Confirm.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { IconAlertTriangle, IconPencil, IconPlayerTrackNext, IconTrash } from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { Page } from '../../ui/Page.tsx';
import { accountName } from '../connections/EndUser.tsx';
import { type At, connectionQuery } from '../connections/queries.ts';
import { isOver, type Run, resetSync, runQuery, type Sync, syncsQuery } from '../functions/queries.ts';
import { RunError } from '../functions/RunError.tsx';
import { SyncBadge } from '../functions/StateBadge.tsx';
import { SyncActs, syncKeys } from '../functions/SyncActs.tsx';
import { LastRun, NextTime } from '../functions/SyncsTable.tsx';
import { withEvery } from '../functions/words.ts';
import { AnchorLink, BackLink, ButtonLink, connectionPage, datasetPage, runPage } from '../links.tsx';
import { type BrowsedRecord, recordsQuery } from '../records/queries.ts';
import { ActionBadge } from '../records/RecordsTab.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { useMay } from '../sign-in/queries.ts';
import { useChange } from '../use-change.ts';
import { Cell } from './PreviewTable.tsx';
import { type CellValue, removeSheet } from './queries.ts';
import { nextStepOf } from './SheetFault.tsx';
import { type ChosenSheet, chosenOf, type Identity, nameOf, rowModel, rowsSync } from './settings.ts';

/** The polling interval is shorter during a run. */
const runningMs = 1_000;
const idleMs = 5_000;

/** A sheet: its state, its last run, and its rows as records. */
export function SheetPage() {
  const environment = useEnvironment();
  const { variant, integration, id } = useParams({
    from: '/$environment/connections/$integration/$id/sheets/of/$variant',
  });
  const at: At = { integration, id };
  const connection = useQuery(connectionQuery(environment, at));
  const sheet = connection.data && chosenOf(connection.data.metadata).find((one) => one.variant === variant);
  return (
    <Page
      title={sheet === undefined ? variant : nameOf(sheet)}
      before={
        <BackLink {...connectionPage(environment, at, 'syncs')}>
          {connection.data === undefined ? at.id : accountName(connection.data)}
        </BackLink>
      }
    >
      <Loaded query={connection}>
        {() =>
          sheet === undefined ? (
            <EmptyState
              icon={<IconTrash size={26} />}
              title="Unknown sheet"
              action={
                <ButtonLink
                  to="/$environment/connections/$integration/$id/sheets/new"
                  params={{ environment, ...at }}
                  search={{}}
                >
                  Add a sheet
                </ButtonLink>
              }
            >
              No sheet has the name {variant}. It may have been removed.
            </EmptyState>
          ) : (
            <Sheet at={at} sheet={sheet} />
          )
        }
      </Loaded>
    </Page>
  );
}

function Sheet({ at, sheet }: { at: At; sheet: ChosenSheet }) {
  const environment = useEnvironment();
  const { variant } = sheet;
  const query = useQuery({
    ...syncsQuery(environment, {
      integration_id: at.integration,
      connection_id: at.id,
      function: rowsSync,
      limit: 200,
    }),
    refetchInterval: ({ state: { data } }) =>
      data?.syncs.find((one) => one.variant === variant)?.current_run ? runningMs : idleMs,
  });
  return (
    <Loaded query={query} loading={<LoadingRows rows={2} height={160} />}>
      {({ syncs }) => {
        const sync = syncs.find((one) => one.variant === variant);
        return (
          <Stack gap="lg">
            <StateCard at={at} sheet={sheet} sync={sync} />
            <SheetRecords at={{ ...at, variant }} sync={sync} />
          </Stack>
        );
      }}
    </Loaded>
  );
}

/** Removes a sheet, and optionally its records. */
function RemoveSheet({
  at,
  sheet,
  onClose,
}: {
  at: At;
  /** The dialog is closed while it is undefined. */
  sheet: ChosenSheet | undefined;
  onClose: () => void;
}) {
  const environment = useEnvironment();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [records, setRecords] = useState<'kept' | 'removed'>('kept');
  const remove = useMutation({
    mutationFn: ({ variant }: ChosenSheet) => removeSheet(environment, { at, variant, records }),
    onMutate: () => location.pathname,
    onSuccess: async (_answer, _given, from) => {
      if (location.pathname === from) await navigate(connectionPage(environment, at, 'syncs'));
      await queries.invalidateQueries({ queryKey: [environment] });
    },
  });
  return (
    <Confirm
      title="Remove the sheet?"
      act={records === 'kept' ? 'Remove the sheet' : 'Remove sheet and records'}
      given={sheet}
      mutation={remove}
      onClose={onClose}
    >
      <Stack>
        <Text>
          {sheet === undefined ? 'It' : nameOf(sheet)} is no longer read. The spreadsheet is not changed.
        </Text>
        <Radio.Group
          label="Records"
          value={records}
          onChange={(next) => setRecords(next === 'removed' ? next : 'kept')}
        >
          <Stack gap="xs" mt="xs">
            <Radio
              value="kept"
              label="Keep the records"
              description="They can still be read and pruned, and no longer change."
            />
            <Radio
              value="removed"
              label="Remove the records"
              description="All records are removed at once; consumers receive an event that the dataset was emptied."
            />
          </Stack>
        </Radio.Group>
      </Stack>
    </Confirm>
  );
}

/** The state of a sheet, its last run, and its actions. */
function StateCard({ at, sheet, sync }: { at: At; sheet: ChosenSheet; sync: Sync | undefined }) {
  const environment = useEnvironment();
  const may = useMay();
  const mayWrite = may('functions:write') && may('connections:write');
  const [isRemoving, setRemoving] = useState(false);
  const syncAt = { integration: at.integration, connection: at.id, name: rowsSync, variant: sheet.variant };
  // Without the checkpoint, the run reads the whole sheet, and restores the payloads of pruned rows.
  const run = useChange(() => resetSync(environment, { ...syncAt, records: 'kept' }), {
    stale: syncKeys(environment),
  });
  return (
    <Card component="section" aria-label="State">
      <Stack gap="sm">
        <Group justify="space-between" gap="xs">
          <Group gap="xs">
            <Title order={2}>State</Title>
            <SyncBadge sync={sync} />
            {sheet.variant !== 'base' && <Badge color="gray">{sheet.variant}</Badge>}
          </Group>
          {mayWrite && (
            <Group gap="xs">
              <Button
                size="sm"
                leftSection={<IconPlayerTrackNext size={16} />}
                loading={run.isPending}
                disabled={sync === undefined || sync.current_run !== null || !sync.enabled}
                onClick={() => run.mutate()}
              >
                Run now
              </Button>
              <ButtonLink
                size="sm"
                variant="default"
                leftSection={<IconPencil size={16} />}
                to="/$environment/connections/$integration/$id/sheets/new"
                params={{ environment, ...at }}
                search={{ edit: sheet.variant }}
              >
                Edit
              </ButtonLink>
              <Button
                size="sm"
                variant="default"
                leftSection={<IconTrash size={16} />}
                onClick={() => setRemoving(true)}
              >
                Remove
              </Button>
              <SyncActs at={syncAt} sync={sync} />
            </Group>
          )}
        </Group>
        <Text size="sm">{howText(sheet)}</Text>
        {sync === undefined ? (
          <Text size="sm" role="status">
            The sync of this sheet is missing. Edit and save the sheet to create it.
          </Text>
        ) : (
          <Group gap="lg">
            <Text size="sm">
              <Text span inherit c="dimmed">
                Runs{' '}
              </Text>
              {sync.frequency === null ? 'manually' : withEvery(sync.frequency)}
            </Text>
            <Group gap={6}>
              <Dimmed>Last run</Dimmed>
              <LastRun sync={sync} />
            </Group>
            <Text size="sm">
              <Text span inherit c="dimmed">
                Next{' '}
              </Text>
              <NextTime sync={sync} />
            </Text>
          </Group>
        )}
        {sync?.held && <Text size="sm">{sync.held.message}</Text>}
        {run.isError && <FaultNotice error={run.error} />}
        <Progress sync={sync} mayWrite={mayWrite} />
      </Stack>
      <RemoveSheet at={at} sheet={isRemoving ? sheet : undefined} onClose={() => setRemoving(false)} />
    </Card>
  );
}

const ways: Record<Exclude<Identity, 'key'>, string> = {
  metadata: 'rows are identified by a hidden ID',
  content: 'rows are identified by their content',
};

function howText({ headerRow, identity, keyColumn }: ChosenSheet): string {
  const how = identity === 'key' ? `rows are identified by ${keyColumn}` : ways[identity];
  return `The header is row ${headerRow}; ${how}.`;
}

/** The progress of the current run, or the result of the last one. */
function Progress({ sync, mayWrite }: { sync: Sync | undefined; mayWrite: boolean }) {
  const environment = useEnvironment();
  const id = sync?.current_run?.id ?? sync?.last_run?.id;
  const { data: run } = useQuery({ ...runQuery(environment, id ?? ''), enabled: id !== undefined });
  if (run === undefined) return null;
  if (!isOver(run)) {
    return (
      <Group gap="xs" role="status">
        <Loader size="xs" aria-hidden />
        <Text size="sm">{run.state === 'waiting' ? 'The run waits for capacity.' : progressText(run)}</Text>
      </Group>
    );
  }
  if (run.error === null) {
    return <Dimmed role="status">{outcomeText(run)}</Dimmed>;
  }
  const step = nextStepOf(run.error.code);
  if (step === undefined || run.state !== 'failed') {
    return <RunError run={run} type="sync" mayWrite={mayWrite} />;
  }
  return (
    <Alert color="red" icon={<IconAlertTriangle size={18} />} title={run.error.message} role="alert">
      <Text size="sm">
        {step}{' '}
        <AnchorLink inherit c="inherit" underline="always" {...runPage(environment, run.id)}>
          Open the run
        </AnchorLink>
      </Text>
    </Alert>
  );
}

const names = ['added', 'updated', 'deleted'] as const;

function changesOf(run: Run): string {
  const counts = Object.values(run.counts);
  const sum = (name: (typeof names)[number]) => counts.reduce((all, one) => all + one[name], 0);
  const changes = names.flatMap((name) => (sum(name) > 0 ? [`${sum(name).toLocaleString()} ${name}`] : []));
  return changes.join(', ');
}

function progressText(run: Run): string {
  const changes = changesOf(run);
  return changes === '' ? 'Reading the sheet.' : `Reading the sheet: ${changes} so far.`;
}

function outcomeText(run: Run): string {
  return `The last run: ${changesOf(run) || 'no changes'}.`;
}

const maxShown = 20;
const runningRecordsMs = 1_500;
const idleRecordsMs = 5_000;

/** The rows of a sheet as records, in the order of their latest changes. */
function SheetRecords({
  at: { variant, ...at },
  sync,
}: {
  at: At & { variant: string };
  sync: Sync | undefined;
}) {
  const environment = useEnvironment();
  const isRunning = sync?.current_run != null;
  const query = useQuery({
    ...recordsQuery(environment, { at: { ...at, model: rowModel, variant }, limit: String(maxShown) }),
    // The end of a run may be known before its last records are.
    refetchInterval: ({ state: { data } }) =>
      isRunning || data?.records.length === 0 ? runningRecordsMs : idleRecordsMs,
  });
  const emptyText =
    sync?.last_run?.state === 'succeeded' ? 'The last run found no rows.' : 'No rows were read yet.';
  return (
    <Card component="section" aria-label="Records">
      <Group justify="space-between" mb="xs">
        <Title order={2}>Records</Title>
        <AnchorLink size="sm" {...datasetPage(environment, { ...at, model: rowModel, variant })}>
          Open the dataset
        </AnchorLink>
      </Group>
      <Loaded query={query} loading={<LoadingRows rows={4} height={36} />}>
        {({ records, nextCursor }) =>
          records.length === 0 ? (
            <Dimmed>{isRunning ? 'The first rows appear in a moment.' : emptyText}</Dimmed>
          ) : (
            <>
              <RowsTable records={records} />
              {nextCursor !== null && (
                <Dimmed mt="xs">The first {records.length}, in the order of their last change.</Dimmed>
              )}
            </>
          )
        }
      </Loaded>
    </Card>
  );
}

function RowsTable({ records }: { records: BrowsedRecord[] }) {
  const fields = [...new Set(records.flatMap((record) => Object.keys(cellsOf(record) ?? {})))];
  return (
    <Table.ScrollContainer
      minWidth={Math.max(280, (fields.length + 2) * 120)}
      scrollAreaProps={{ viewportProps: { tabIndex: 0, role: 'region', 'aria-label': 'Rows as records' } }}
    >
      <Table>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>ID</Table.Th>
            {fields.map((field) => (
              <Table.Th key={field} className="wrap">
                {field}
              </Table.Th>
            ))}
            {fields.length === 0 && <Table.Th>Cells</Table.Th>}
            <Table.Th>Last action</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {records.map((record) => (
            <Row key={record.id} record={record} fields={fields} />
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

function Row({ record, fields }: { record: BrowsedRecord; fields: string[] }) {
  const cells = cellsOf(record);
  return (
    <Table.Tr>
      <Table.Td maw={160}>
        <Text span size="sm" ff="monospace" className="wrap">
          {record.id}
        </Text>
      </Table.Td>
      {cells === undefined ? (
        <Table.Td colSpan={Math.max(1, fields.length)}>
          <Badge color="yellow">pruned</Badge>
        </Table.Td>
      ) : (
        fields.map((field) => (
          <Table.Td key={field}>
            <Cell value={cells[field] ?? null} />
          </Table.Td>
        ))
      )}
      <Table.Td>
        <ActionBadge action={record.action} />
      </Table.Td>
    </Table.Tr>
  );
}

/** The cells by header; undefined if the record is pruned. */
function cellsOf({ fields: payload }: BrowsedRecord): Record<string, CellValue> | undefined {
  return payload && ((payload.fields ?? {}) as Record<string, CellValue>);
}
