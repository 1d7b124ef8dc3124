import { Button, TextInput } from '@mantine/core';
import { useState } from 'react';
import { IconChevronRight, IconSearch } from '../ui/icons.tsx';
import type { Choice, Choices } from './queries.ts';
import { useTranslate } from './texts.ts';
import { useHeading } from './use-heading.ts';

/** A list up to this length has no search field. */
const fewChoices = 6;
/** The number of choices shown at once; a page with ten thousand buttons no longer responds. */
const atOnce = 100;

export function ChoiceList({ choices, onChoose }: { choices: Choices; onChoose: (key: string) => void }) {
  const t = useTranslate();
  const heading = useHeading();
  const [search, setSearch] = useState('');
  const [max, setMost] = useState(atOnce);
  const wanted = search.trim().toLowerCase();
  const names = choices.choices.map(({ display_name }) => display_name);
  const isAmbiguous = (name: string) => names.indexOf(name) !== names.lastIndexOf(name);
  const fitting = choices.choices.filter(({ display_name, provider_display_name }) =>
    `${display_name} ${provider_display_name}`.toLowerCase().includes(wanted),
  );
  return (
    <section>
      <h1 ref={heading} tabIndex={-1}>
        {t('chooseTitle')}
      </h1>
      <Audience choices={choices} />
      {choices.choices.length > fewChoices && (
        <TextInput
          className="search"
          type="search"
          aria-label={t('search')}
          placeholder={t('search')}
          leftSection={<IconSearch size={16} />}
          value={search}
          onChange={({ currentTarget }) => {
            setSearch(currentTarget.value);
            setMost(atOnce);
          }}
        />
      )}
      <ul className="choices">
        {fitting.slice(0, max).map((choice) => (
          <li key={choice.integration_id}>
            <button type="button" className="choice" onClick={() => onChoose(choice.integration_id)}>
              <ChoiceLogo choice={choice} />
              <span className="name">
                {choice.display_name}
                {isAmbiguous(choice.display_name) && <code className="soft">{choice.integration_id}</code>}
              </span>
              {choice.test && <TestBadge />}
              <IconChevronRight size={18} />
            </button>
          </li>
        ))}
      </ul>
      {fitting.length > max && (
        <Button variant="default" fullWidth mt="sm" onClick={() => setMost(max + atOnce)}>
          {t('showMore')}
        </Button>
      )}
      {fitting.length === 0 && <p role="status">{t('nothingFits', { search: search.trim() })}</p>}
    </section>
  );
}

export function ChoiceLogo({ choice }: { choice: Choice }) {
  return <img className="logo" src={choice.logo} alt="" width={44} height={44} />;
}

export function TestBadge() {
  const t = useTranslate();
  return (
    <span className="badge" title={t('testHelp')}>
      {t('test')}
    </span>
  );
}

/** The end user and the service that requests access, shown before the user starts. */
export function Audience({ choices }: { choices: Choices }) {
  const t = useTranslate();
  const { end_user: user, environment } = choices;
  const email = user?.email && user.email !== user.name ? ` (${user.email})` : '';
  return (
    <dl className="facts">
      {user?.name && (
        <>
          <dt>{t('for')}</dt>
          <dd>
            {user.name}
            {email}
            {user.organization && `, ${user.organization}`}
          </dd>
        </>
      )}
      <dt>{t('at')}</dt>
      <dd>
        {new URL(document.documentElement.dataset.baseUrl ?? location.href).host}, {environment}
      </dd>
    </dl>
  );
}
