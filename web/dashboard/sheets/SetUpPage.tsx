import { Button, Card, Group, Stack, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { BackLink } from '../../ui/BackLink.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { Page } from '../../ui/Page.tsx';
import { type At, connectionQuery, type WholeConnection } from '../connections/queries.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMay } from '../sign-in/queries.ts';
import { bookQuery, readyQuery } from './queries.ts';
import { RowsStep } from './RowsStep.tsx';
import { SheetFault } from './SheetFault.tsx';
import { SpreadsheetStep } from './SpreadsheetStep.tsx';
import { chosenOf } from './settings.ts';
import { TabField } from './TabField.tsx';

/** The choice of a sheet, or a new choice of how a sheet is read. The address holds the choices so far. */
export function SetUpPage() {
  const environment = useEnvironment();
  const at: At = useParams({ from: '/$environment/connections/$integration/$id/sheets/new' });
  const { edit } = useSearch({ from: '/$environment/connections/$integration/$id/sheets/new' });
  const may = useMay();
  const mayWrite = may('functions:write') && may('connections:write');
  const connection = useQuery(connectionQuery(environment, at));
  const ready = useQuery({ ...readyQuery(environment, at), enabled: mayWrite });
  const account = connection.data?.account?.email ?? at.id;
  return (
    <Page
      title={edit === undefined ? 'Add a sheet' : 'Edit a sheet'}
      about="A tab of a spreadsheet becomes records, one for each row. Nothing is changed in the sheet to look at it."
      before={
        <BackLink
          link={(props) => (
            <Link
              to="/$environment/connections/$integration/$id"
              params={{ environment, ...at }}
              {...props}
            />
          )}
        >
          {account}
        </BackLink>
      }
    >
      {!mayWrite ? (
        <Text c="dimmed">Your role may look at sheets, not choose them. Ask a developer or an owner.</Text>
      ) : ready.isError ? (
        <SheetFault error={ready.error} onRetry={() => void ready.refetch()} />
      ) : (
        <Loaded query={connection} loading={<LoadingRows rows={3} height={120} />}>
          {(loaded) =>
            ready.data === undefined ? (
              <LoadingRows rows={3} height={120} />
            ) : (
              <Steps environment={environment} at={at} connection={loaded} />
            )
          }
        </Loaded>
      )}
    </Page>
  );
}

function Steps({
  environment,
  at,
  connection,
}: {
  environment: string;
  at: At;
  connection: WholeConnection;
}) {
  const search = useSearch({ from: '/$environment/connections/$integration/$id/sheets/new' });
  const navigate = useNavigate({ from: '/$environment/connections/$integration/$id/sheets/new' });
  const chosen = chosenOf(connection.metadata);
  const edited = chosen.find(({ variant }) => variant === search.edit);
  const spreadsheet = edited?.spreadsheetId ?? search.spreadsheet;
  const book = useQuery({
    ...bookQuery(environment, { at, spreadsheet: spreadsheet ?? '' }),
    enabled: spreadsheet !== undefined,
  });
  const choose = (next: string | undefined) => void navigate({ search: { spreadsheet: next } });
  if (search.edit !== undefined && edited === undefined) {
    return <Text c="dimmed">No sheet is chosen under the name {search.edit}.</Text>;
  }
  if (spreadsheet === undefined) {
    return <SpreadsheetStep environment={environment} at={at} isTest={connection.test} onChoose={choose} />;
  }
  const another = edited === undefined && (
    <Button variant="default" size="sm" onClick={() => choose(undefined)}>
      Choose another one
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
            <Text size="sm">
              Tab: {tab?.title ?? 'deleted'}. To follow another one, add it as a sheet of its own.
            </Text>
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
          environment={environment}
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
