import { Button } from '@mantine/core';
import { IconCheck } from '@tabler/icons-react';
import { useState } from 'react';
import { Audience } from './Audience.tsx';
import { ChoiceLogo, TestBadge } from './ChoiceLogo.tsx';
import { type Form, FormFields, missingIn, readRefusal } from './FormFields.tsx';
import { Hints } from './Hints.tsx';
import { type Choice, type Choices, type Session, submitForm } from './queries.ts';
import { ScopeText } from './ScopeText.tsx';
import { useSay } from './texts.ts';

/** One integration: whom it is for, what will be asked, and the way to begin. */
export function Begin({
  choice,
  choices,
  session,
  isUnderWay,
  onTravel,
  onDone,
  onOther,
}: {
  choice: Choice;
  choices: Choices;
  session: Session;
  /** Whether somebody went to the provider and has not come back. */
  isUnderWay: boolean;
  onTravel: (values: Record<string, string>) => void;
  onDone: () => Promise<void>;
  onOther: (() => void) | undefined;
}) {
  const say = useSay();
  const [form, setForm] = useState<Form>({ values: {}, wrong: {}, refusal: undefined });
  const [isSending, setSending] = useState(false);
  const { display_name: name, provider_display_name: provider, account } = choice;
  const isOAuth = choice.auth_mode === 'OAUTH2';

  const begin = async () => {
    const wrong = missingIn(choice, { values: form.values, message: say('needed') });
    setForm({ ...form, wrong, refusal: undefined });
    if (Object.keys(wrong).length > 0) return;
    if (isOAuth) {
      onTravel(form.values);
      return;
    }
    setSending(true);
    try {
      await submitForm(session, { choice, values: form.values });
      await onDone();
    } catch (error) {
      setForm({ ...form, ...readRefusal(error, { choice, say }) });
    }
    setSending(false);
  };

  return (
    <section>
      <div className="head">
        <ChoiceLogo choice={choice} />
        <h1>
          {say(choices.reconnect ? 'reconnectTitle' : 'connectTitle', { name })}{' '}
          {choice.test && <TestBadge />}
        </h1>
      </div>
      <p className="soft">{say(isOAuth ? 'intro' : 'introForm', { provider })}</p>
      <Audience choices={choices} />
      {account !== null && (
        <p className="account">{say(accountTexts[account.rule], { email: account.email })}</p>
      )}
      {isUnderWay && isOAuth && (
        <p className="wait" role="status">
          {say('underWay', { provider })}
        </p>
      )}
      {choice.scopes.length > 0 && (
        <>
          <h2>{say(choice.adds_scopes ? 'willAskMore' : 'willAsk', { provider })}</h2>
          <ul className="scopes">
            {choice.scopes.map((scope) => (
              <li key={scope.scope}>
                <IconCheck size={16} aria-hidden />
                <ScopeText scope={scope} />
              </li>
            ))}
          </ul>
        </>
      )}
      <form
        noValidate
        autoComplete="off"
        onSubmit={(event) => {
          event.preventDefault();
          void begin();
        }}
      >
        <FormFields choice={choice} form={form} onChange={setForm} />
        {form.refusal !== undefined && (
          <p className="bad" role="alert">
            {form.refusal}
          </p>
        )}
        <Button type="submit" size="md" fullWidth loading={isSending}>
          {isOAuth ? say('continueTo', { provider }) : say('connect')}
        </Button>
      </form>
      <div className="links">
        {choice.docs_connect !== null && (
          <a href={choice.docs_connect} target="_blank" rel="noopener noreferrer">
            {say('howTo')}
          </a>
        )}
        {onOther && (
          <button type="button" className="link" onClick={onOther}>
            {say('somethingElse')}
          </button>
        )}
      </div>
      {isUnderWay && isOAuth && <Hints provider={provider} />}
    </section>
  );
}

/** How the account that is expected is told of, by what becomes of another one. */
export const accountTexts = {
  same: 'accountSame',
  replaceable: 'accountReplaceable',
  end_user: 'accountEndUser',
} as const;
