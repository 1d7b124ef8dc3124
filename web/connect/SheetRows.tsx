import { Button, NativeSelect, TextInput } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { useCallback, useState } from 'react';
import type { Session } from './queries.ts';
import { SheetFault } from './SheetFault.tsx';
import { type Book, chooseSheet, fetchPreview, type Preview } from './sheet-queries.ts';
import { useSay } from './texts.ts';
import { useAnswer } from './useAnswer.ts';

const maxRows = 4;
/** Chosen in place of a column. */
const noKey = '';

/** Tab, header row and key column of a spreadsheet, with its first rows. */
export function SheetRows({
  session,
  book,
  account,
  onChosen,
  onOther,
}: {
  session: Session;
  book: Book;
  account: string;
  onChosen: () => Promise<void>;
  onOther: () => void;
}) {
  const say = useSay();
  const { token, baseUrl } = session;
  const tabs = book.tabs.filter(({ kind }) => kind === 'grid');
  const [sheetId, setSheetId] = useState(book.sheetId ?? tabs[0]?.sheetId ?? 0);
  const [typedRow, setTypedRow] = useState<number>();
  const [headerRow] = useDebouncedValue(typedRow, 400);
  const [picked, setPicked] = useState<string>();
  const spreadsheet = book.spreadsheetId;
  const ask = useCallback(
    () =>
      fetchPreview(
        { token, baseUrl },
        {
          ...{ spreadsheet, sheetId },
          ...(headerRow !== undefined && { headerRow }),
          ...(picked && { keyColumn: picked }),
        },
      ),
    [token, baseUrl, spreadsheet, sheetId, headerRow, picked],
  );
  const preview = useAnswer(ask);
  const [choosing, setChoosing] = useState<{ fault?: unknown } | undefined>();
  const shown = preview.fault === undefined ? preview.data : undefined;
  const key = picked ?? shown?.suggestedKeyColumn ?? noKey;
  const isReady =
    shown !== undefined && shown.columns.length > 0 && !preview.isWaiting && typedRow === headerRow;

  const choose = async () => {
    if (shown === undefined) return;
    setChoosing({});
    const tab = tabs.find((one) => one.sheetId === sheetId)?.title ?? '';
    const named = { title: book.title, tab };
    const choice = { spreadsheetId: spreadsheet, sheetId, headerRow: headerRow ?? shown.headerRow, ...named };
    try {
      await chooseSheet(session, { ...choice, ...(key !== noKey && { keyColumn: key }) });
      await onChosen();
    } catch (fault) {
      setChoosing({ fault });
    }
  };

  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void choose();
      }}
    >
      <p className="account picked flush">
        <strong>{book.title}</strong>
        <button type="button" className="link" onClick={onOther}>
          {say('sheetOther')}
        </button>
      </p>
      <NativeSelect
        label={say('sheetTab')}
        data={tabs.map(({ sheetId: value, title: label }) => ({ value: String(value), label }))}
        value={String(sheetId)}
        onChange={({ currentTarget }) => {
          setSheetId(Number(currentTarget.value));
          setTypedRow(undefined);
          setPicked(undefined);
        }}
      />
      <TextInput
        type="number"
        label={say('sheetHeader')}
        min={1}
        max={1_000_000}
        value={typedRow ?? shown?.headerRow ?? ''}
        onChange={({ currentTarget: { valueAsNumber: next } }) =>
          Number.isInteger(next) && next >= 1 && setTypedRow(next)
        }
      />
      {preview.fault !== undefined && (
        <SheetFault fault={preview.fault} account={account} onAgain={preview.again} />
      )}
      {shown?.columns.length === 0 && (
        <p className="wait flush" role="status">
          {say('sheetNoColumns')}
        </p>
      )}
      {shown !== undefined && shown.columns.length > 0 && (
        <>
          <NativeSelect
            label={say('sheetKey')}
            description={say('sheetKeyHelp')}
            data={[
              { value: noKey, label: say('sheetKeyNone') },
              ...shown.columns.map(({ field }) => ({ value: field, label: field })),
            ]}
            value={key}
            onChange={({ currentTarget }) => setPicked(currentTarget.value)}
          />
          {key !== noKey && shown.keys?.column === key && <KeyWarning keys={shown.keys} />}
          <FirstRows preview={shown} isWaiting={preview.isWaiting} />
        </>
      )}
      {choosing?.fault !== undefined && (
        <SheetFault fault={choosing.fault} account={account} onAgain={() => void choose()} />
      )}
      <Button
        type="submit"
        size="md"
        fullWidth
        disabled={!isReady}
        loading={choosing !== undefined && choosing.fault === undefined}
      >
        {say('sheetUse')}
      </Button>
    </form>
  );
}

function KeyWarning({ keys: { empty, duplicates, examples } }: { keys: NonNullable<Preview['keys']> }) {
  const say = useSay();
  if (empty + duplicates === 0) return null;
  return (
    <p className="wait flush" role="status">
      {duplicates > 0 && say('sheetKeyTwice', { keys: examples.join(', ') })}{' '}
      {empty > 0 && say('sheetKeyEmpty')}
    </p>
  );
}

function FirstRows({ preview, isWaiting }: { preview: Preview; isWaiting: boolean }) {
  const say = useSay();
  const { columns, rows } = preview;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: wide tables are scrolled with the keyboard, too
    <section className="rows" aria-label={say('sheetRows')} aria-busy={isWaiting} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {columns.map(({ field }) => (
              <th key={field} scope="col">
                {field}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, maxRows).map((row, index) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: the rows have no names, and come all at once
            <tr key={index}>
              {columns.map(({ field }) => (
                <td key={field}>{shownAs(row[field])}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function shownAs(value: Preview['rows'][number][string] | undefined): string {
  if (value === null || value === undefined) return '';
  return typeof value === 'object' ? value.error : String(value);
}
