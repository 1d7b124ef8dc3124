import { Button, TextInput } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { IconChevronRight, IconSearch } from '@tabler/icons-react';
import { useCallback, useState } from 'react';
import type { Session } from './queries.ts';
import { fetchSpreadsheets } from './sheet-queries.ts';
import { useSay } from './texts.ts';
import { useAnswer } from './useAnswer.ts';

/** By its link, or out of those that the account can see. A list that cannot be had is left out: a link always does. */
export function SpreadsheetChoice({
  session: { token, baseUrl },
  isOpening,
  onChoose,
}: {
  session: Session;
  isOpening: boolean;
  onChoose: (spreadsheet: string) => void;
}) {
  const say = useSay();
  const [link, setLink] = useState('');
  const [typed, setTyped] = useState('');
  const [search] = useDebouncedValue(typed.trim(), 300);
  const ask = useCallback(() => fetchSpreadsheets({ token, baseUrl }, search), [token, baseUrl, search]);
  const { data, isWaiting } = useAnswer(ask);
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
          label={say('sheetLink')}
          description={say('sheetLinkHelp')}
          placeholder="https://docs.google.com/spreadsheets/d/…"
          spellCheck={false}
          value={link}
          onChange={({ currentTarget }) => setLink(currentTarget.value)}
        />
        <Button type="submit" size="md" fullWidth loading={isOpening} disabled={link.trim() === ''}>
          {say('sheetOpen')}
        </Button>
      </form>
      {data?.available && (
        <>
          <h2>{say('sheetOr')}</h2>
          <TextInput
            type="search"
            aria-label={say('search')}
            placeholder={say('search')}
            leftSection={<IconSearch size={16} aria-hidden />}
            value={typed}
            onChange={({ currentTarget }) => setTyped(currentTarget.value)}
          />
          <ul className="choices" aria-busy={isWaiting}>
            {data.spreadsheets.map(({ spreadsheetId, title }) => (
              <li key={spreadsheetId}>
                <button
                  type="button"
                  className="choice"
                  disabled={isOpening}
                  onClick={() => onChoose(spreadsheetId)}
                >
                  <span className="name">{title}</span>
                  <IconChevronRight size={18} aria-hidden />
                </button>
              </li>
            ))}
          </ul>
          {data.spreadsheets.length === 0 && !isWaiting && <p role="status">{say('sheetNone')}</p>}
        </>
      )}
    </>
  );
}
