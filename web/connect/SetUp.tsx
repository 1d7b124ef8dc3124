import { useCallback, useEffect, useRef, useState } from 'react';
import { Loading } from './Notice.tsx';
import type { Made, Session } from './queries.ts';
import { SheetFault } from './SheetFault.tsx';
import { SheetRows } from './SheetRows.tsx';
import { SpreadsheetChoice } from './SpreadsheetChoice.tsx';
import { fetchBook, fetchSetUp } from './sheet-queries.ts';
import { useSay } from './texts.ts';
import { useAnswer } from './useAnswer.ts';

/** Once the connection is made: which sheet of the account is to be read. */
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
  const say = useSay();
  const { token, baseUrl } = session;
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus(), []);
  const facts = useAnswer(useCallback(() => fetchSetUp({ token, baseUrl }), [token, baseUrl]));
  const [spreadsheet, setSpreadsheet] = useState<string>();
  const askBook = useCallback(
    () => fetchBook({ token, baseUrl }, spreadsheet ?? ''),
    [token, baseUrl, spreadsheet],
  );
  const book = useAnswer(spreadsheet === undefined ? undefined : askBook);
  const account = facts.data?.account ?? '';
  const isOpen = spreadsheet !== undefined && book.data !== undefined && !book.isWaiting && !book.fault;
  return (
    <section>
      <h1 ref={heading} tabIndex={-1}>
        {say('sheetTitle')}
      </h1>
      <p className="soft">{say('sheetText', { name: made.display_name })}</p>
      {facts.fault !== undefined ? (
        <SheetFault fault={facts.fault} account={account} onAgain={facts.again} />
      ) : facts.data === undefined ? (
        <Loading />
      ) : isOpen && book.data ? (
        <SheetRows
          key={book.data.spreadsheetId}
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
          {say('sheetSkip')}
        </button>
      </div>
    </section>
  );
}
