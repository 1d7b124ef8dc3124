import {
  Alert,
  Button,
  Card,
  Group,
  NumberInput,
  Radio,
  Select,
  Stack,
  Text,
  TextInput,
  Title,
} from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { FilterField } from '../../ui/FilterField.tsx';
import { IconFilePlus, IconSearch } from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { accountName } from '../connections/EndUser.tsx';
import { type At, connectionQuery, datasetsQuery, type WholeConnection } from '../connections/queries.ts';
import { syncsQuery } from '../functions/queries.ts';
import { withEvery } from '../functions/words.ts';
import { BackLink, connectionPage, GuideLink } from '../links.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { useMay } from '../sign-in/queries.ts';
import { PreviewTable } from './PreviewTable.tsx';
import {
  type Book,
  defaultFrequencyQuery,
  type ListedSpreadsheets,
  type Preview,
  type PreviewColumn,
  previewQuery,
  readyQuery,
  saveSheet,
  spreadsheetQuery,
  spreadsheetsQuery,
  type Tab,
} from './queries.ts';
import { SheetFault } from './SheetFault.tsx';
import { makeSampleSheet } from './sample.ts';
import {
  type ChosenSheet,
  chosenOf,
  freeVariant,
  type Identity,
  keepsIds,
  rowModel,
  rowsSync,
  type SheetSettings,
  variantPattern,
} from './settings.ts';

/** Adds a sheet, or changes how a sheet is read. The choices so far are in the address. */
export function SetUpPage() {
  const environment = useEnvironment();
  const at: At = useParams({ from: '/$environment/connections/$integration/$id/sheets/new' });
  const { edit } = useSearch({ from: '/$environment/connections/$integration/$id/sheets/new' });
  const may = useMay();
  const mayWrite = may('functions:write') && may('connections:write');
  const connection = useQuery(connectionQuery(environment, at));
  const ready = useQuery({ ...readyQuery(environment, at), enabled: mayWrite });
  const account = connection.data === undefined ? at.id : accountName(connection.data);
  return (
    <Page
      title={edit === undefined ? 'Add a sheet' : 'Edit a sheet'}
      about={
        <>
          Each row of a tab becomes a record. The preview does not change the sheet. <GuideLink to="sheets" />
        </>
      }
      before={<BackLink {...connectionPage(environment, at, 'syncs')}>{account}</BackLink>}
    >
      {!mayWrite ? (
        <Text c="dimmed">Your role is read-only. A developer or an owner can add sheets.</Text>
      ) : ready.isError ? (
        <SheetFault error={ready.error} onRetry={() => void ready.refetch()} />
      ) : (
        <Loaded query={connection} loading={<LoadingRows rows={3} height={120} />}>
          {(loaded) =>
            ready.data === undefined ? (
              <LoadingRows rows={3} height={120} />
            ) : (
              <Steps at={at} connection={loaded} />
            )
          }
        </Loaded>
      )}
    </Page>
  );
}

function Steps({ at, connection }: { at: At; connection: WholeConnection }) {
  const environment = useEnvironment();
  const search = useSearch({ from: '/$environment/connections/$integration/$id/sheets/new' });
  const navigate = useNavigate({ from: '/$environment/connections/$integration/$id/sheets/new' });
  const chosen = chosenOf(connection.metadata);
  const edited = chosen.find(({ variant }) => variant === search.edit);
  const spreadsheet = edited?.spreadsheetId ?? search.spreadsheet;
  const book = useQuery({
    ...spreadsheetQuery(environment, { at, spreadsheet: spreadsheet ?? '' }),
    enabled: spreadsheet !== undefined,
  });
  const choose = (next: string | undefined) => void navigate({ search: { spreadsheet: next } });
  if (search.edit !== undefined && edited === undefined) {
    return <Text c="dimmed">This connection has no sheet with the name {search.edit}.</Text>;
  }
  if (spreadsheet === undefined) {
    return <SpreadsheetStep at={at} isTest={connection.test} onChoose={choose} />;
  }
  const another = edited === undefined && (
    <Button variant="default" size="sm" onClick={() => choose(undefined)}>
      Choose another spreadsheet
    </Button>
  );
  if (book.data === undefined) {
    return book.isError ? (
      <Stack align="flex-start">
        <SheetFault error={book.error} onRetry={() => void book.refetch()} />
        {another}
      </Stack>
    ) : (
      <LoadingRows rows={3} height={120} />
    );
  }
  const sheetId = edited?.sheetId ?? search.tab ?? book.data.sheetId;
  const tab = book.data.tabs.find((one) => one.sheetId === sheetId);
  return (
    <Stack gap="lg">
      <Card component="section" aria-label="Spreadsheet">
        <Stack>
          <Group justify="space-between" gap="xs">
            <Title order={2} className="wrap">
              {book.data.title}
            </Title>
            {another}
          </Group>
          {edited !== undefined ? (
            <Text size="sm">Tab: {tab?.title ?? 'deleted'}. To read another tab, add it as a new sheet.</Text>
          ) : (
            <TabField
              tabs={book.data.tabs}
              chosen={sheetId}
              onChoose={(next) => void navigate({ search: { spreadsheet, tab: next }, replace: true })}
            />
          )}
        </Stack>
      </Card>
      {tab !== undefined && (
        <RowsStep
          key={`${book.data.spreadsheetId}/${tab.sheetId}`}
          at={at}
          book={book.data}
          tab={tab}
          chosen={chosen}
          edited={edited}
        />
      )}
    </Stack>
  );
}

/** Selects a tab; tabs without cells, such as charts, are disabled. */
function TabField({
  tabs,
  chosen,
  onChoose,
}: {
  tabs: readonly Tab[];
  chosen: number | null;
  onChoose: (sheetId: number) => void;
}) {
  const data = tabs.map(({ sheetId, title, kind, hidden }) => ({
    value: String(sheetId),
    label: hidden ? `${title} (hidden)` : title,
    disabled: kind === 'object',
  }));
  const tab = tabs.find(({ sheetId }) => sheetId === chosen);
  return (
    <>
      <Select
        label="Tab"
        data={data}
        value={tab === undefined ? null : String(tab.sheetId)}
        placeholder="Choose one"
        onChange={(next) => next !== null && onChoose(Number(next))}
        allowDeselect={false}
        searchable={tabs.length > 8}
        nothingFoundMessage="Unknown tab"
        maw={420}
      />
      {chosen !== null && tab === undefined && (
        <Dimmed>The spreadsheet no longer has this tab. Choose another one.</Dimmed>
      )}
    </>
  );
}

/** Selects a spreadsheet from a list or by its link. */
function SpreadsheetStep({
  at,
  isTest,
  onChoose,
}: {
  at: At;
  /** Whether it uses test credentials, whose account may have no spreadsheet yet. */
  isTest: boolean;
  onChoose: (spreadsheet: string) => void;
}) {
  const environment = useEnvironment();
  const [search, setSearch] = useState<string>();
  const query = useInfiniteQuery(spreadsheetsQuery(environment, { at, search }));
  const [first] = query.data?.pages ?? [];
  const found = query.data?.pages.flatMap(({ spreadsheets }) => spreadsheets) ?? [];
  return (
    <Card component="section" aria-label="Spreadsheet">
      <Stack>
        <Title order={2}>Which spreadsheet?</Title>
        <LinkForm onChoose={onChoose} />
        {isTest && <Sample at={at} onChoose={onChoose} />}
        {first === undefined ? (
          query.isError ? (
            <SheetFault error={query.error} onRetry={() => void query.refetch()} />
          ) : (
            <LoadingRows rows={3} height={44} />
          )
        ) : first.available ? (
          <Stack gap="xs">
            <FilterField
              label="Or choose one from the account, last changed first"
              {...(first.ownFilesOnly && {
                description: 'The list contains only files that this application created or opened.',
              })}
              placeholder="Title"
              leftSection={<IconSearch size={16} />}
              maw={420}
              value={search}
              onSettle={setSearch}
            />
            {query.isError && <SheetFault error={query.error} onRetry={() => void query.refetch()} />}
            <Spreadsheets found={found} isWaiting={query.isPlaceholderData} onChoose={onChoose} />
            {query.hasNextPage && (
              <Group>
                <Button
                  variant="default"
                  size="sm"
                  loading={query.isFetchingNextPage}
                  onClick={() => void query.fetchNextPage()}
                >
                  More
                </Button>
              </Group>
            )}
          </Stack>
        ) : (
          <Dimmed>
            This connection cannot list the files of the account. To choose from a list, reconnect it with a
            scope such as <code>drive.metadata.readonly</code>.
          </Dimmed>
        )}
      </Stack>
    </Card>
  );
}

function LinkForm({ onChoose }: { onChoose: (spreadsheet: string) => void }) {
  const [typed, setTyped] = useState('');
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (typed.trim() !== '') onChoose(typed.trim());
      }}
    >
      <Group align="flex-end" gap="xs">
        <TextInput
          label="Link or ID"
          description="The address in the browser when the spreadsheet is open"
          placeholder="https://docs.google.com/spreadsheets/d/…"
          flex="1 1 260px"
          data-autofocus
          value={typed}
          onChange={({ currentTarget: { value } }) => setTyped(value)}
        />
        <Button type="submit" disabled={typed.trim() === ''}>
          Open
        </Button>
      </Group>
    </form>
  );
}

function Sample({ at, onChoose }: { at: At; onChoose: (spreadsheet: string) => void }) {
  const environment = useEnvironment();
  const make = useMutation({
    mutationFn: () => {
      const caller = { environment, integration: at.integration, connection: at.id };
      return makeSampleSheet(caller, new AbortController().signal);
    },
    onSuccess: onChoose,
  });
  return (
    <Stack gap="xs">
      <Group gap="xs">
        <Button
          variant="light"
          leftSection={<IconFilePlus size={16} />}
          loading={make.isPending}
          onClick={() => make.mutate()}
        >
          Create a sample spreadsheet
        </Button>
      </Group>
      {make.isError && <SheetFault error={make.error} onRetry={() => make.mutate()} />}
    </Stack>
  );
}

function Spreadsheets({
  found,
  isWaiting,
  onChoose,
}: {
  found: ListedSpreadsheets['spreadsheets'];
  isWaiting: boolean;
  onChoose: (spreadsheet: string) => void;
}) {
  if (found.length === 0) {
    return <Dimmed role="status">The account has no spreadsheet with this title.</Dimmed>;
  }
  return (
    <Stack
      gap={0}
      component="ul"
      className="framed plain-list"
      opacity={isWaiting ? 0.6 : 1}
      aria-label="Spreadsheets"
      aria-busy={isWaiting}
    >
      {found.map(({ spreadsheetId, title, modifiedAt }) => (
        <li key={spreadsheetId}>
          <Button
            variant="subtle"
            color="gray"
            fullWidth
            justify="space-between"
            radius={0}
            h="auto"
            py={10}
            onClick={() => onChoose(spreadsheetId)}
            rightSection={
              <Dimmed fw={400}>
                <RelativeTime at={modifiedAt} />
              </Dimmed>
            }
            classNames={{ label: 'wrapping' }}
          >
            {title}
          </Button>
        </li>
      ))}
    </Stack>
  );
}

/** The preview waits until typing pauses. */
const settleMs = 400;

/** The header row and the identification of rows, with a preview. */
function RowsStep({
  at,
  book,
  tab,
  chosen,
  edited,
}: {
  at: At;
  book: Book;
  tab: Tab;
  /** All sheets of the connection. */
  chosen: ChosenSheet[];
  /** The sheet that is changed; undefined: a new one. */
  edited: ChosenSheet | undefined;
}) {
  const environment = useEnvironment();
  const [typedRow, setTypedRow] = useState<number | undefined>(edited?.headerRow);
  const [headerRow] = useDebouncedValue(typedRow, settleMs);
  const [picked, setPicked] = useState<RowIdentity | undefined>(
    edited && { identity: edited.identity, keyColumn: edited.keyColumn },
  );
  const query = useQuery(
    previewQuery(environment, {
      at,
      spreadsheet: book.spreadsheetId,
      sheetId: tab.sheetId,
      ...(headerRow !== undefined && { headerRow }),
      ...(picked?.keyColumn !== undefined && { keyColumn: picked.keyColumn }),
    }),
  );
  const { data: preview } = query;
  const identification = picked ?? suggested(preview);
  const isWaiting = query.isFetching || typedRow !== headerRow;
  const settings: SheetSettings | undefined =
    preview === undefined || query.isError
      ? undefined
      : {
          spreadsheetId: book.spreadsheetId,
          sheetId: tab.sheetId,
          headerRow: headerRow ?? preview.headerRow,
          identity: identification.identity,
          ...(identification.identity === 'key' &&
            identification.keyColumn !== undefined && { keyColumn: identification.keyColumn }),
          title: book.title,
          tab: tab.title,
        };
  return (
    <>
      <Card component="section" aria-label="Rows">
        <Stack>
          <Title order={2}>Rows</Title>
          <Group align="flex-end" gap="sm">
            <NumberInput
              label="Header row"
              description="The row with the names of the columns"
              min={1}
              max={1_000_000}
              allowDecimal={false}
              w={220}
              value={typedRow ?? preview?.headerRow ?? ''}
              onChange={(next) => typeof next === 'number' && next >= 1 && setTypedRow(next)}
            />
            {preview !== undefined && preview.suggestedHeaderRow !== (typedRow ?? preview.headerRow) && (
              <Button variant="default" onClick={() => setTypedRow(preview.suggestedHeaderRow)}>
                Row {preview.suggestedHeaderRow} is probably the header
              </Button>
            )}
          </Group>
          {query.isError ? (
            <SheetFault error={query.error} onRetry={() => void query.refetch()} />
          ) : preview === undefined ? (
            <LoadingRows rows={4} height={40} />
          ) : preview.columns.length === 0 ? (
            <Alert color="yellow" role="status" title="There are no columns in this row">
              Choose the row with the names of the columns, or another tab.
            </Alert>
          ) : (
            <>
              <PreviewTable
                columns={preview.columns}
                rows={preview.rows}
                keyColumn={identification.identity === 'key' ? identification.keyColumn : undefined}
                isWaiting={isWaiting}
              />
              <Dimmed role="status">{countText(preview)}</Dimmed>
              <IdentityField
                identification={identification}
                offered={book.identities}
                columns={preview.columns}
                keys={preview.keys}
                onChange={setPicked}
              />
            </>
          )}
        </Stack>
      </Card>
      {settings !== undefined && preview !== undefined && preview.columns.length > 0 && (
        <SaveStep at={at} settings={settings} chosen={chosen} edited={edited} isWaiting={isWaiting} />
      )}
    </>
  );
}

/** Identification by the suggested key column if there is one, otherwise by content, which writes nothing to the sheet. */
function suggested(preview: Preview | undefined): RowIdentity {
  const keyColumn = preview?.suggestedKeyColumn ?? undefined;
  return { identity: keyColumn === undefined ? 'content' : 'key', keyColumn };
}

function countText({ totalRows, rows }: Preview): string {
  if (totalRows === 0) return 'There is no row below the header yet.';
  if (totalRows === rows.length) return totalRows === 1 ? '1 row.' : `${totalRows} rows.`;
  return `The first ${rows.length} of ${totalRows.toLocaleString()} rows.`;
}

type RowIdentity = { identity: Identity; keyColumn: string | undefined };

const words: Record<Identity, { label: string; description: string }> = {
  key: { label: 'Key column', description: 'The value in this column is the ID of the record.' },
  metadata: {
    label: 'Hidden row ID',
    description:
      'The service adds a hidden ID to each row. The ID moves with the row, so that the row keeps its ID when its cells change.',
  },
  content: {
    label: 'Match by content',
    description:
      'Nothing is written to the sheet. A moved row is identified by its cells, a changed row by its neighbors.',
  },
};

/** How a row is identified. */
function IdentityField({
  identification: { identity, keyColumn },
  offered,
  columns,
  keys,
  onChange,
}: {
  identification: RowIdentity;
  /** The identifications that the scopes of the connection allow. */
  offered: readonly Identity[];
  columns: readonly PreviewColumn[];
  keys: Preview['keys'];
  onChange: (identification: RowIdentity) => void;
}) {
  return (
    <Stack gap="sm">
      <Radio.Group
        label="Identification of rows"
        description="A row that is identified again keeps its record, so that only real changes are reported."
        value={identity}
        onChange={(next) => {
          const chosen = next as Identity;
          onChange({ identity: chosen, keyColumn: keyColumn ?? columns[0]?.field });
        }}
      >
        <Stack gap="xs" mt="xs">
          {offered.map((one) => (
            <Radio key={one} value={one} {...words[one]} />
          ))}
        </Stack>
      </Radio.Group>
      {identity === 'key' && (
        <Select
          label="Key column"
          data={columns.map(({ field }) => field)}
          value={keyColumn ?? null}
          onChange={(next) => next !== null && onChange({ identity, keyColumn: next })}
          allowDeselect={false}
          searchable
          nothingFoundMessage="Unknown column"
          error={
            keyColumn !== undefined &&
            !columns.some(({ field }) => field === keyColumn) &&
            `No column is called ${keyColumn} at the moment`
          }
          maw={360}
        />
      )}
      {identity === 'key' && keys !== null && keys.column === keyColumn && <KeyWarning keys={keys} />}
    </Stack>
  );
}

function KeyWarning({ keys: { empty, duplicates, examples } }: { keys: NonNullable<Preview['keys']> }) {
  if (empty + duplicates === 0) return null;
  const named = examples.join(', ') + (duplicates > examples.length ? ', …' : '');
  return (
    <Alert color="yellow" role="status" title="Not every row has a unique key">
      {duplicates > 0 &&
        `${duplicates === 1 ? 'One key occurs' : `${duplicates.toLocaleString()} keys occur`} in more than one row: ${named}. The first row keeps the key, the others get key~2, key~3. `}
      {empty > 0 &&
        `${empty === 1 ? 'One row has' : `${empty.toLocaleString()} rows have`} no key, and ${empty === 1 ? 'is' : 'are'} identified by ${empty === 1 ? 'its' : 'their'} content.`}
    </Alert>
  );
}

/** The choice of the default frequency. */
const byDefault = 'default';
/** By frequencies as the service writes them. */
const commonFrequencies: Record<string, string> = {
  '1m': 'every minute',
  '15m': 'every 15 minutes',
  '30m': 'every 30 minutes',
  '1h': 'every hour',
  '6h': 'every 6 hours',
  '1d': 'every day',
};

/** The name and frequency of the records, and the button that saves. */
function SaveStep({
  at,
  settings,
  chosen,
  edited,
  isWaiting,
}: {
  at: At;
  settings: SheetSettings;
  chosen: ChosenSheet[];
  edited: ChosenSheet | undefined;
  /** The preview of the current choice is not loaded yet. */
  isWaiting: boolean;
}) {
  const environment = useEnvironment();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const { data: datasets = [] } = useQuery(datasetsQuery(environment, at));
  const { data: syncs } = useQuery(
    syncsQuery(environment, {
      integration_id: at.integration,
      connection_id: at.id,
      function: rowsSync,
      limit: 200,
    }),
  );
  const taken = new Set(chosen.map(({ variant }) => variant));
  const kept = new Set(
    datasets.filter(({ model, records }) => model === rowModel && records > 0).map(({ variant }) => variant),
  );
  const { data: defaultFrequency } = useQuery(defaultFrequencyQuery(environment));
  const [typed, setTyped] = useState<string>();
  const names = { title: settings.title ?? '', tab: settings.tab ?? '' };
  const variant = edited?.variant ?? typed ?? freeVariant(names, new Set([...taken, ...kept]));
  const [frequency, setFrequency] = useState<string>();
  const sync = syncs?.syncs.find((one) => one.variant === variant);
  const current = sync?.own_frequency ?? byDefault;
  const nameError = edited === undefined ? nameErrorOf(variant, taken) : undefined;
  const isLeftover = edited === undefined && kept.has(variant);
  const isRenumbered = edited !== undefined && !keepsIds(edited, settings);
  const save = useMutation({
    mutationFn: () =>
      saveSheet(environment, {
        at,
        variant,
        settings,
        frequency:
          frequency === undefined || frequency === current
            ? undefined
            : frequency === byDefault
              ? null
              : frequency,
        isNew: edited === undefined,
        emptied: isLeftover || isRenumbered,
      }),
    onMutate: () => location.pathname,
    onSuccess: async (_answer, _given, from) => {
      await Promise.all(
        ['connection', 'syncs', 'runs', 'functions'].map((name) =>
          queries.invalidateQueries({ queryKey: [environment, name] }),
        ),
      );
      if (location.pathname !== from) return;
      await navigate({
        to: '/$environment/connections/$integration/$id/sheets/of/$variant',
        params: { environment, ...at, variant },
      });
    },
  });
  const offered = { ...(current !== byDefault && { [current]: withEvery(current) }), ...commonFrequencies };
  return (
    <Card component="section" aria-label="Save">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          save.mutate();
        }}
      >
        <Stack>
          <Title order={2}>Records</Title>
          <Group align="flex-start" gap="md">
            {edited === undefined && (
              <TextInput
                label="Name"
                description={
                  variant === 'base'
                    ? `Records of the model ${rowModel}; "base" need not be named to read them`
                    : `Records of the model ${rowModel}, read with variant=${variant}`
                }
                flex="1 1 240px"
                maw={420}
                value={variant}
                error={nameError}
                onChange={({ currentTarget: { value } }) => setTyped(value.trim())}
              />
            )}
            <Select
              label="Frequency"
              description="An unchanged sheet needs one call"
              flex="1 1 200px"
              maw={300}
              data={[
                {
                  value: byDefault,
                  label: defaultFrequency ? `${withEvery(defaultFrequency)} (default)` : 'default',
                },
                ...Object.entries(offered).map(([value, label]) => ({ value, label })),
              ]}
              value={frequency ?? current}
              onChange={(next) => setFrequency(next ?? undefined)}
              allowDeselect={false}
            />
          </Group>
          {isLeftover && (
            <Alert color="yellow" role="status" title="Records of another sheet have this name">
              They are deleted when you save this sheet.
            </Alert>
          )}
          {isRenumbered && (
            <Alert color="yellow" role="status" title="The records get new IDs">
              The identification of rows changed. All records are removed and added again with new IDs;
              consumers receive an event that the dataset was emptied.
            </Alert>
          )}
          {settings.identity === 'metadata' && (
            <Dimmed>The first run writes the hidden ID to each row of the sheet.</Dimmed>
          )}
          {save.isError && <FaultNotice error={save.error} />}
          <Group justify="flex-end">
            <Button type="submit" loading={save.isPending} disabled={isWaiting || nameError !== undefined}>
              {edited === undefined ? 'Save and read the sheet' : 'Save and read the sheet again'}
            </Button>
          </Group>
        </Stack>
      </form>
    </Card>
  );
}

function nameErrorOf(name: string, taken: ReadonlySet<string>): string | undefined {
  if (!variantPattern.test(name)) return 'Up to 255 letters, digits, _ and -';
  return taken.has(name) ? 'Another sheet of this connection has this name' : undefined;
}
