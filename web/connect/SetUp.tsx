import { Button, NativeSelect, TextInput } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { useCallback, useEffect, useRef, useState } from 'react';
import { IconChevronRight, IconSearch } from '../ui/icons.tsx';
import { Loading } from './Notice.tsx';
import { Fault, type Made, type Session } from './queries.ts';
import {
  type Book,
  chooseSheet,
  fetchBook,
  fetchPreview,
  fetchSetUp,
  fetchSpreadsheets,
  type Preview,
  useResponse,
} from './sheet-queries.ts';
import { type TextKey, useTranslate } from './texts.ts';

/** After the connection is created: the choice of the sheet to read. */
export function SetUp({
  session,
  made,
  onChosen,
  onSkip,
}: {
  session: Session;
  made: Made;
  onChosen: () => Promise<void>;
  onSkip: () => void;
}) {
  const t = useTranslate();
  const { token, baseUrl } = session;
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus(), []);
  const facts = useResponse(useCallback(() => fetchSetUp({ token, baseUrl }), [token, baseUrl]));
  const [spreadsheet, setSpreadsheet] = useState<string>();
  const fetchChosen = useCallback(
    () => fetchBook({ token, baseUrl }, spreadsheet ?? ''),
    [token, baseUrl, spreadsheet],
  );
  const book = useResponse(spreadsheet === undefined ? undefined : fetchChosen);
  const account = facts.data?.account ?? '';
  const isOpen = spreadsheet !== undefined && book.data !== undefined && !book.isWaiting && !book.fault;
  return (
    <section>
      <h1 ref={heading} tabIndex={-1}>
        {t('sheetTitle')}
      </h1>
      <p className="soft">{t('sheetText', { name: made.display_name })}</p>
      {facts.fault !== undefined ? (
        <SheetFault fault={facts.fault} account={account} onAgain={facts.again} />
      ) : facts.data === undefined ? (
        <Loading />
      ) : isOpen && book.data ? (
        <SheetRows
          key={book.data.spreadsheet_id}
          session={session}
          book={book.data}
          account={account}
          onChosen={onChosen}
          onOther={() => setSpreadsheet(undefined)}
        />
      ) : (
        <>
          {book.fault !== undefined && spreadsheet !== undefined && (
            <SheetFault fault={book.fault} account={account} onAgain={book.again} />
          )}
          <SpreadsheetChoice
            session={session}
            isOpening={spreadsheet !== undefined && book.isWaiting}
            onChoose={setSpreadsheet}
          />
        </>
      )}
      <div className="links">
        <button type="button" className="link" onClick={onSkip}>
          {t('sheetSkip')}
        </button>
      </div>
    </section>
  );
}

/** The text by the type of the fault, if the user can resolve it. */
const faultTexts: Record<string, TextKey> = {
  source_unavailable: 'sheetUnavailable',
  invalid_link: 'sheetBadLink',
  missing_scopes: 'sheetScopes',
  quota_exhausted: 'sheetBusy',
  header_row_missing: 'sheetNoColumns',
  unreachable: 'unreachableText',
  unknown_connect_session_token: 'sheetLate',
};

/** Why a sheet cannot be read, and what the user can do. */
export function SheetFault({
  fault,
  account,
  onAgain,
}: {
  fault: unknown;
  account: string;
  onAgain: () => void;
}) {
  const t = useTranslate();
  const { code, payload } = fault instanceof Fault ? fault : { code: 'unknown', payload: undefined };
  const type = (payload as { type?: unknown } | undefined)?.type;
  const known = faultTexts[typeof type === 'string' ? type : code];
  return (
    <div className="refusal">
      <p className="bad" role="alert">
        {known === undefined ? `${t('sheetFault')} (${code})` : t(known, { account })}
      </p>
      {code !== 'unknown_connect_session_token' && (
        <Button variant="default" onClick={onAgain}>
          {t('tryAgain')}
        </Button>
      )}
    </div>
  );
}

/** A spreadsheet by its link, or from a list. If the account cannot be listed, only the link is offered. */
function SpreadsheetChoice({
  session: { token, baseUrl },
  isOpening,
  onChoose,
}: {
  session: Session;
  isOpening: boolean;
  onChoose: (spreadsheet: string) => void;
}) {
  const t = useTranslate();
  const [link, setLink] = useState('');
  const [typed, setTyped] = useState('');
  const [search] = useDebouncedValue(typed.trim(), 300);
  const fetchCurrent = useCallback(
    () => fetchSpreadsheets({ token, baseUrl }, search),
    [token, baseUrl, search],
  );
  const { data, isWaiting } = useResponse(fetchCurrent);
  return (
    <>
      <form
        noValidate
        autoComplete="off"
        onSubmit={(event) => {
          event.preventDefault();
          if (link.trim() !== '') onChoose(link.trim());
        }}
      >
        <TextInput
          label={t('sheetLink')}
          description={t('sheetLinkHelp')}
          placeholder="https://docs.google.com/spreadsheets/d/…"
          spellCheck={false}
          value={link}
          onChange={({ currentTarget }) => setLink(currentTarget.value)}
        />
        <Button type="submit" size="md" fullWidth loading={isOpening} disabled={link.trim() === ''}>
          {t('sheetOpen')}
        </Button>
      </form>
      {data?.available && (
        <>
          <h2>{t('sheetOr')}</h2>
          <TextInput
            type="search"
            aria-label={t('search')}
            placeholder={t('search')}
            leftSection={<IconSearch size={16} />}
            value={typed}
            onChange={({ currentTarget }) => setTyped(currentTarget.value)}
          />
          <ul className="choices" aria-busy={isWaiting}>
            {data.spreadsheets.map(({ spreadsheet_id: spreadsheetId, title }) => (
              <li key={spreadsheetId}>
                <button
                  type="button"
                  className="choice"
                  disabled={isOpening}
                  onClick={() => onChoose(spreadsheetId)}
                >
                  <span className="name">{title}</span>
                  <IconChevronRight size={18} />
                </button>
              </li>
            ))}
          </ul>
          {data.spreadsheets.length === 0 && !isWaiting && <p role="status">{t('sheetNone')}</p>}
        </>
      )}
    </>
  );
}

const maxRows = 4;
/** The value for no key column. */
const noKey = '';

/** Tab, header row and key column of a spreadsheet, with its first rows. */
function SheetRows({
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
  const t = useTranslate();
  const { token, baseUrl } = session;
  const tabs = book.tabs.filter(({ kind }) => kind === 'grid');
  const [sheetId, setSheetId] = useState(book.sheet_id ?? tabs[0]?.sheet_id ?? 0);
  const [typedRow, setTypedRow] = useState<number>();
  const [headerRow] = useDebouncedValue(typedRow, 400);
  const [picked, setPicked] = useState<string>();
  const spreadsheet = book.spreadsheet_id;
  const fetchCurrent = useCallback(
    () =>
      fetchPreview(
        { token, baseUrl },
        {
          spreadsheet,
          sheet_id: sheetId,
          ...(headerRow !== undefined && { header_row: headerRow }),
          ...(picked && { key_column: picked }),
        },
      ),
    [token, baseUrl, spreadsheet, sheetId, headerRow, picked],
  );
  const preview = useResponse(fetchCurrent);
  const [choosing, setChoosing] = useState<{ fault?: unknown } | undefined>();
  const shown = preview.fault === undefined ? preview.data : undefined;
  const key = picked ?? shown?.suggested_key_column ?? noKey;
  const isReady =
    shown !== undefined && shown.columns.length > 0 && !preview.isWaiting && typedRow === headerRow;

  const choose = async () => {
    if (shown === undefined) return;
    setChoosing({});
    const tab = tabs.find((one) => one.sheet_id === sheetId)?.title ?? '';
    const named = { title: book.title, tab };
    const choice = {
      spreadsheet_id: spreadsheet,
      sheet_id: sheetId,
      header_row: headerRow ?? shown.header_row,
      ...named,
    };
    try {
      await chooseSheet(session, { ...choice, ...(key !== noKey && { key_column: key }) });
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
          {t('sheetOther')}
        </button>
      </p>
      <NativeSelect
        label={t('sheetTab')}
        data={tabs.map(({ sheet_id: value, title: label }) => ({ value: String(value), label }))}
        value={String(sheetId)}
        onChange={({ currentTarget }) => {
          setSheetId(Number(currentTarget.value));
          setTypedRow(undefined);
          setPicked(undefined);
        }}
      />
      <TextInput
        type="number"
        label={t('sheetHeader')}
        min={1}
        max={1_000_000}
        value={typedRow ?? shown?.header_row ?? ''}
        onChange={({ currentTarget: { valueAsNumber: next } }) =>
          Number.isInteger(next) && next >= 1 && setTypedRow(next)
        }
      />
      {preview.fault !== undefined && (
        <SheetFault fault={preview.fault} account={account} onAgain={preview.again} />
      )}
      {shown?.columns.length === 0 && (
        <p className="wait flush" role="status">
          {t('sheetNoColumns')}
        </p>
      )}
      {shown !== undefined && shown.columns.length > 0 && (
        <>
          <NativeSelect
            label={t('sheetKey')}
            description={t('sheetKeyHelp')}
            data={[
              { value: noKey, label: t('sheetKeyNone') },
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
        {t('sheetUse')}
      </Button>
    </form>
  );
}

function KeyWarning({ keys: { empty, duplicates, examples } }: { keys: NonNullable<Preview['keys']> }) {
  const t = useTranslate();
  if (empty + duplicates === 0) return null;
  return (
    <p className="wait flush" role="status">
      {duplicates > 0 && t('sheetKeyTwice', { keys: examples.join(', ') })} {empty > 0 && t('sheetKeyEmpty')}
    </p>
  );
}

function FirstRows({ preview, isWaiting }: { preview: Preview; isWaiting: boolean }) {
  const t = useTranslate();
  const { columns, rows } = preview;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: wide tables are scrolled with the keyboard, too
    <section className="rows" aria-label={t('sheetRows')} aria-busy={isWaiting} tabIndex={0}>
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
