import { Button, PasswordInput, Textarea, TextInput } from '@mantine/core';
import { useEffect, useState } from 'react';
import { focusInvalid } from '../ui/focus-invalid.ts';
import { IconCheck } from '../ui/icons.tsx';
import { Audience, ChoiceLogo, TestBadge } from './ChoiceList.tsx';
import { type Choice, type Choices, Fault, type Session, submitForm } from './queries.ts';
import { type TextKey, type Translate, useLanguage, useTranslate } from './texts.ts';
import { useHeading } from './use-heading.ts';
import { Hints } from './Waiting.tsx';

/** One integration: the end user, the requested permissions, and the button that starts. */
export function Begin({
  choice,
  choices,
  session,
  draft,
  refused,
  isUnderWay,
  onDraft,
  onTravel,
  onDone,
  onOther,
}: {
  choice: Choice;
  choices: Choices;
  session: Session;
  /** What the user has entered before, without secrets. */
  draft: Record<string, string>;
  /** The fields that were refused when the user went to the provider. */
  refused: Fault['fields'];
  /** Whether the user went to the provider and has not returned. */
  isUnderWay: boolean;
  onDraft: (values: Record<string, string>) => void;
  onTravel: (values: Record<string, string>) => void;
  onDone: () => Promise<void>;
  onOther: (() => void) | undefined;
}) {
  const t = useTranslate();
  const heading = useHeading();
  const [form, setForm] = useState<Form>({
    values: draft,
    wrong: wrongOf(refused, { choice, values: draft }),
    refusal: undefined,
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: of this visit
  useEffect(() => {
    if (refused.length > 0) focusInvalid();
  }, []);
  const [isSending, setSending] = useState(false);
  const { display_name: name, provider_display_name: provider, account } = choice;
  const isOAuth = choice.form_path === null;

  const begin = async () => {
    const wrong = missingIn(choice, form.values);
    setForm({ ...form, wrong, refusal: undefined });
    focusInvalid();
    if (Object.keys(wrong).length > 0) return;
    const values = trimmed(choice, form.values);
    if (isOAuth) {
      onTravel(values);
      return;
    }
    setSending(true);
    try {
      await submitForm(session, { choice, values });
      await onDone();
    } catch (error) {
      setForm({ ...form, ...readRefusal(error, { choice, values }) });
      focusInvalid();
    }
    setSending(false);
  };

  return (
    <section>
      <div className="head">
        <ChoiceLogo choice={choice} />
        <h1 ref={heading} tabIndex={-1}>
          {t(choices.reconnect ? 'reconnectTitle' : 'connectTitle', { name })} {choice.test && <TestBadge />}
        </h1>
      </div>
      <p className="soft">{t(isOAuth ? 'intro' : 'introForm', { provider })}</p>
      <Audience choices={choices} />
      {account !== null && (
        <p className="account">{t(accountTexts[account.rule], { email: account.email })}</p>
      )}
      {isUnderWay && isOAuth && (
        <p className="wait" role="status">
          {t('underWay', { provider })}
        </p>
      )}
      {choice.scopes.length > 0 && (
        <>
          <h2>{t(choice.adds_scopes ? 'willAskMore' : 'willAsk', { provider })}</h2>
          <ul className="scopes">
            {choice.scopes.map((scope) => (
              <li key={scope.scope}>
                <IconCheck size={16} />
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
        <FormFields
          choice={choice}
          form={form}
          onChange={(next) => {
            setForm(next);
            onDraft(plainOf(choice, next.values));
          }}
        />
        {form.refusal !== undefined && (
          <p className="bad" role="alert">
            {form.refusal(t)}
          </p>
        )}
        <Button type="submit" size="md" fullWidth loading={isSending}>
          {isOAuth ? t('continueTo', { provider }) : t('connect')}
        </Button>
      </form>
      <div className="links">
        {choice.docs_connect !== null && (
          <a href={choice.docs_connect} target="_blank" rel="noopener noreferrer">
            {t('howTo')}
          </a>
        )}
        {onOther && (
          <button type="button" className="link" onClick={onOther}>
            {t('somethingElse')}
          </button>
        )}
      </div>
      {isUnderWay && isOAuth && <Hints provider={provider} />}
    </section>
  );
}

/** The text about the expected account, by the rule for other accounts. */
export const accountTexts = {
  same: 'accountSame',
  replaceable: 'accountReplaceable',
  end_user: 'accountEndUser',
} as const;

/** The permission of a scope, in the page's language if the provider definition has it, otherwise in English. */
export function ScopeText({
  scope: { scope, description, translations },
}: {
  scope: Choice['scopes'][number];
}) {
  const language = useLanguage();
  const translated = translations[language];
  return (
    <span lang={translated === undefined ? 'en' : language} dir="auto">
      {translated ?? description ?? scope}
    </span>
  );
}

/** A text in the language of the page, which the user may change while the text is shown. */
type Text = (t: Translate) => string;

export type Form = {
  values: Record<string, string>;
  /** The errors of single fields, by name. */
  wrong: Record<string, Text>;
  refusal: Text | undefined;
};

/** Labels for fields without a title in the provider definition. */
const known: Record<string, { title: TextKey; help?: TextKey }> = {
  apiKey: { title: 'apiKey', help: 'apiKeyHelp' },
  username: { title: 'username' },
  password: { title: 'password' },
  client_id: { title: 'client_id' },
  client_secret: { title: 'client_secret', help: 'clientHelp' },
};

/** The fields that the user fills in; none if the provider needs none. */
function FormFields({
  choice,
  form,
  onChange,
}: {
  choice: Choice;
  form: Form;
  onChange: (form: Form) => void;
}) {
  const t = useTranslate();
  const provider = choice.provider_display_name;
  return choice.fields.map((field) => {
    const { title, help } = known[field.name] ?? {};
    const label = field.title ?? (title ? t(title) : field.name);
    const props = {
      name: field.name,
      label: field.required === false ? `${label} (${t('optional')})` : label,
      description: field.description ?? (help ? t(help, { provider }) : undefined),
      placeholder: field.example ?? undefined,
      value: form.values[field.name] ?? '',
      error: form.wrong[field.name]?.(t),
      required: field.required === true,
      withAsterisk: false,
      autoComplete: 'off',
      dir: 'auto',
      spellCheck: false,
      onChange: ({ currentTarget: { value } }: { currentTarget: { value: string } }) =>
        onChange({
          ...form,
          values: { ...form.values, [field.name]: value },
          wrong: Object.fromEntries(Object.entries(form.wrong).filter(([name]) => name !== field.name)),
        }),
    };
    // A field for passwords has one line, and browsers take the line breaks out of what is pasted there.
    if (field.multiline) return <Textarea key={field.name} {...props} rows={6} className="key-text" />;
    return field.secret ? (
      <PasswordInput
        key={field.name}
        {...props}
        aria-invalid={props.error !== undefined}
        visibilityToggleButtonProps={{ 'aria-label': t('show'), tabIndex: 0 }}
      />
    ) : (
      <TextInput key={field.name} {...props} />
    );
  });
}

/** Required fields that are empty. */
function missingIn({ fields }: Choice, values: Form['values']): Form['wrong'] {
  const empty = fields.filter(({ name, required }) => required === true && !values[name]?.trim());
  return Object.fromEntries(empty.map(({ name }) => [name, (t: Translate) => t('needed')]));
}

/** The values without spaces around them, except for secrets and texts of several lines. */
function trimmed({ fields }: Choice, values: Form['values']): Form['values'] {
  const isTrimmed = (name: string) =>
    fields.some((field) => field.name === name && !field.secret && !field.multiline);
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [name, isTrimmed(name) ? value.trim() : value]),
  );
}

/** The values without those of secret fields. */
function plainOf({ fields }: Choice, values: Form['values']): Form['values'] {
  const secrets = fields.filter(({ secret }) => secret).map(({ name }) => name);
  return Object.fromEntries(Object.entries(values).filter(([name]) => !secrets.includes(name)));
}

/** The texts for reasons, and whether the field's example says more. */
const reasonTexts: Record<string, { text: TextKey; hasExample?: true }> = {
  too_long: { text: 'tooLong' },
  control_characters: { text: 'controlCharacters' },
  not_ascii: { text: 'notAscii' },
  one_of: { text: 'oneOf' },
  characters: { text: 'onlyCharacters', hasExample: true },
  length: { text: 'wrongLength', hasExample: true },
  form: { text: 'wrongForm', hasExample: true },
  address: { text: 'notAddress', hasExample: true },
};

/** The errors of fields, by their reason if the page has a text for it, else in the service's English. */
function wrongOf(
  errors: Fault['fields'],
  { choice, values }: { choice: Choice; values: Form['values'] },
): Form['wrong'] {
  const wrong: Form['wrong'] = {};
  for (const { path, message, reason } of errors) {
    const field = choice.fields.find(({ name }) => name === path);
    if (field === undefined) continue;
    const known = reason && reasonTexts[reason.code];
    const { example } = field;
    wrong[path] = (t) => {
      if (known === undefined) return values[path] ? t('doesNotFit', { message }) : t('needed');
      const why = t(known.text, { limit: reason?.limit ?? '' });
      return known.hasExample && example !== null ? `${why} ${t('example', { example })}` : why;
    };
  }
  return wrong;
}

/** The errors of a response, by field where the service names one. */
function readRefusal(
  error: unknown,
  { choice, values }: { choice: Choice; values: Form['values'] },
): Pick<Form, 'wrong' | 'refusal'> {
  const { code, fields, message, payload } =
    error instanceof Fault ? error : { code: 'unknown', fields: [], message: '', payload: undefined };
  const wrong = wrongOf(fields, { choice, values });
  if (Object.keys(wrong).length > 0) return { wrong, refusal: undefined };
  const isUntested = (payload as { refused?: boolean } | undefined)?.refused === false;
  const provider = choice.provider_display_name;
  const refusals: Record<string, Text> = {
    connection_test_failed: (t) => t(isUntested ? 'formUntested' : 'formRefused', { provider }),
    integration_misconfigured: (t) => t('misconfiguredText', { provider }),
    unreachable: (t) => t('unreachableText'),
    unknown_connect_session_token: (t) => t('unknownText'),
    session_in_other_browser: (t) => t('otherBrowserText'),
  };
  return { wrong, refusal: refusals[code] ?? ((t) => `${t('failedText')} ${message}`) };
}
