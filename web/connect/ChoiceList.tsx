import { Button, TextInput } from '@mantine/core';
import { IconChevronRight, IconSearch } from '@tabler/icons-react';
import { useState } from 'react';
import { Audience } from './Audience.tsx';
import { ChoiceLogo, TestBadge } from './ChoiceLogo.tsx';
import type { Choices } from './queries.ts';
import { useSay } from './texts.ts';

/** So many are looked over at a glance. */
const fewChoices = 6;
/** So many are shown at once; a page that holds ten thousand buttons answers no key any more. */
const atOnce = 100;

export function ChoiceList({ choices, onChoose }: { choices: Choices; onChoose: (key: string) => void }) {
  const say = useSay();
  const [search, setSearch] = useState('');
  const [max, setMost] = useState(atOnce);
  const wanted = search.trim().toLowerCase();
  const fitting = choices.choices.filter(({ display_name, provider_display_name }) =>
    `${display_name} ${provider_display_name}`.toLowerCase().includes(wanted),
  );
  return (
    <section>
      <h1>{say('chooseTitle')}</h1>
      <Audience choices={choices} />
      {choices.choices.length > fewChoices && (
        <TextInput
          className="search"
          type="search"
          aria-label={say('search')}
          placeholder={say('search')}
          leftSection={<IconSearch size={16} aria-hidden />}
          value={search}
          onChange={({ currentTarget }) => {
            setSearch(currentTarget.value);
            setMost(atOnce);
          }}
        />
      )}
      <ul className="choices">
        {fitting.slice(0, max).map((choice) => (
          <li key={choice.unique_key}>
            <button type="button" className="choice" onClick={() => onChoose(choice.unique_key)}>
              <ChoiceLogo choice={choice} />
              <span className="name">{choice.display_name}</span>
              {choice.test && <TestBadge />}
              <IconChevronRight size={18} aria-hidden />
            </button>
          </li>
        ))}
      </ul>
      {fitting.length > max && (
        <Button variant="default" fullWidth mt="sm" onClick={() => setMost(max + atOnce)}>
          {say('showMore')}
        </Button>
      )}
      {fitting.length === 0 && <p role="status">{say('nothingFits', { search: search.trim() })}</p>}
    </section>
  );
}
