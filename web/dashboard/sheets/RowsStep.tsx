import { Alert, Button, Card, Group, NumberInput, Stack, Text, Title } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { LoadingRows } from '../../ui/Loading.tsx';
import type { At } from '../connections/queries.ts';
import { IdentityField, type Told } from './IdentityField.tsx';
import { PreviewTable } from './PreviewTable.tsx';
import { type Book, type Preview, previewQuery, type Tab } from './queries.ts';
import { SaveStep } from './SaveStep.tsx';
import { SheetFault } from './SheetFault.tsx';
import type { ChosenSheet, SheetSettings } from './settings.ts';

/** While somebody types, no preview is asked for. */
const settleMs = 400;

/** Where the header is, how rows are told apart, and what that makes of the first rows. */
export function RowsStep({
  environment,
  at,
  book,
  tab,
  chosen,
  edited,
}: {
  environment: string;
  at: At;
  book: Book;
  tab: Tab;
  /** All sheets of the connection. */
  chosen: ChosenSheet[];
  /** The one that is changed; undefined: a new one. */
  edited: ChosenSheet | undefined;
}) {
  const [typedRow, setTypedRow] = useState<number | undefined>(edited?.headerRow);
  const [headerRow] = useDebouncedValue(typedRow, settleMs);
  const [picked, setPicked] = useState<Told | undefined>(
    edited && { identity: edited.identity, keyColumn: edited.keyColumn },
  );
  const query = useQuery(
    previewQuery(environment, {
      ...{ at, spreadsheet: book.spreadsheetId, sheetId: tab.sheetId },
      ...(headerRow !== undefined && { headerRow }),
      ...(picked?.keyColumn !== undefined && { keyColumn: picked.keyColumn }),
    }),
  );
  const { data: preview } = query;
  const told = picked ?? suggested(preview);
  const isWaiting = query.isFetching || typedRow !== headerRow;
  const settings: SheetSettings | undefined =
    preview === undefined || query.isError
      ? undefined
      : {
          ...{ spreadsheetId: book.spreadsheetId, sheetId: tab.sheetId },
          headerRow: headerRow ?? preview.headerRow,
          identity: told.identity,
          ...(told.identity === 'key' && told.keyColumn !== undefined && { keyColumn: told.keyColumn }),
          ...{ title: book.title, tab: tab.title },
        };
  return (
    <>
      <Card component="section" aria-label="Rows">
        <Stack>
          <Title order={2}>Its rows</Title>
          <Group align="flex-end" gap="sm">
            <NumberInput
              label="Header row"
              description="It names the columns"
              min={1}
              max={1_000_000}
              allowDecimal={false}
              w={220}
              value={typedRow ?? preview?.headerRow ?? ''}
              onChange={(next) => typeof next === 'number' && next >= 1 && setTypedRow(next)}
            />
            {preview !== undefined && preview.suggestedHeaderRow !== (typedRow ?? preview.headerRow) && (
              <Button variant="default" onClick={() => setTypedRow(preview.suggestedHeaderRow)}>
                Row {preview.suggestedHeaderRow} looks like it
              </Button>
            )}
          </Group>
          {query.isError ? (
            <SheetFault error={query.error} onRetry={() => void query.refetch()} />
          ) : preview === undefined ? (
            <LoadingRows rows={4} height={40} />
          ) : preview.columns.length === 0 ? (
            <Alert color="yellow" role="status" title="There are no columns in this row">
              Choose the row that names them, or another tab.
            </Alert>
          ) : (
            <>
              <PreviewTable
                columns={preview.columns}
                rows={preview.rows}
                keyColumn={told.identity === 'key' ? told.keyColumn : undefined}
                isWaiting={isWaiting}
              />
              <Text size="sm" c="dimmed" role="status">
                {countText(preview)}
              </Text>
              <IdentityField
                told={told}
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
        <SaveStep
          environment={environment}
          at={at}
          settings={settings}
          chosen={chosen}
          edited={edited}
          isWaiting={isWaiting}
        />
      )}
    </>
  );
}

/** By a column that looks like a key where there is one, else without writing anything to the sheet. */
function suggested(preview: Preview | undefined): Told {
  const keyColumn = preview?.suggestedKeyColumn ?? undefined;
  return { identity: keyColumn === undefined ? 'content' : 'key', keyColumn };
}

function countText({ totalRows, rows }: Preview): string {
  if (totalRows === 0) return 'There is no row below the header yet.';
  if (totalRows === rows.length) return totalRows === 1 ? '1 row.' : `${totalRows} rows.`;
  return `The first ${rows.length} of ${totalRows.toLocaleString()} rows.`;
}
