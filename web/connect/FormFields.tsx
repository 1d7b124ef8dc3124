import { PasswordInput, TextInput } from '@mantine/core';
import { Fault } from '../api/client.ts';
import type { Choice } from './queries.ts';
import { type Say, type TextKey, useSay } from './texts.ts';

export type Form = {
  values: Record<string, string>;
  /** What is wrong with single fields, by name. */
  wrong: Record<string, string>;
  refusal: string | undefined;
};

/** Fields whose words are ours where the provider's definition has none. */
const known: Record<string, { title: TextKey; help?: TextKey }> = {
  apiKey: { title: 'apiKey', help: 'apiKeyHelp' },
  username: { title: 'username' },
  password: { title: 'password' },
  client_id: { title: 'client_id' },
  client_secret: { title: 'client_secret', help: 'clientHelp' },
};

/** What the person has to fill in; empty where there is nothing. */
export function FormFields({
  choice,
  form,
  onChange,
}: {
  choice: Choice;
  form: Form;
  onChange: (form: Form) => void;
}) {
  const say = useSay();
  const provider = choice.provider_display_name;
  return choice.fields.map((field) => {
    const { title, help } = known[field.name] ?? {};
    const label = field.title ?? (title ? say(title) : field.name);
    const props = {
      name: field.name,
      label: field.required === false ? `${label} (${say('optional')})` : label,
      description: field.description ?? (help ? say(help, { provider }) : undefined),
      placeholder: field.example ?? undefined,
      value: form.values[field.name] ?? '',
      error: form.wrong[field.name],
      required: field.required === true,
      withAsterisk: false,
      autoComplete: 'off',
      spellCheck: false,
      onChange: ({ currentTarget: { value } }: { currentTarget: { value: string } }) =>
        onChange({
          ...form,
          values: { ...form.values, [field.name]: value },
          wrong: Object.fromEntries(Object.entries(form.wrong).filter(([name]) => name !== field.name)),
        }),
    };
    return field.secret ? (
      <PasswordInput
        key={field.name}
        {...props}
        visibilityToggleButtonProps={{ 'aria-label': say('show'), tabIndex: 0 }}
      />
    ) : (
      <TextInput key={field.name} {...props} />
    );
  });
}

/** Required fields that are empty. */
export function missingIn(
  { fields }: Choice,
  { values, message }: { values: Record<string, string>; message: string },
): Record<string, string> {
  const empty = fields.filter(({ name, required }) => required === true && !values[name]?.trim());
  return Object.fromEntries(empty.map(({ name }) => [name, message]));
}

/** What the service refused, beside the fields that it named. */
export function readRefusal(
  error: unknown,
  { choice, say }: { choice: Choice; say: Say },
): Pick<Form, 'wrong' | 'refusal'> {
  const { code, fields, message } =
    error instanceof Fault ? error : { code: 'unknown', fields: [], message: '' };
  const names = new Set(choice.fields.map(({ name }) => name));
  const wrong = Object.fromEntries(
    fields.filter(({ path }) => names.has(path)).map(({ path }) => [path, say('doesNotFit')]),
  );
  if (Object.keys(wrong).length > 0) return { wrong, refusal: undefined };
  const refusal = {
    connection_test_failed: say('formRefused', { provider: choice.provider_display_name }),
    integration_misconfigured: say('misconfiguredText', { provider: choice.provider_display_name }),
    unreachable: say('unreachableText'),
    unknown_connect_session_token: say('unknownText'),
    session_in_other_browser: say('otherBrowserText'),
  }[code];
  return { wrong, refusal: refusal ?? `${say('failedText')} ${message}` };
}
