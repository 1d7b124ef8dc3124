import {
  Group,
  JsonInput,
  NativeSelect,
  SegmentedControl,
  Stack,
  Switch,
  Text,
  TextInput,
} from '@mantine/core';
import type { FormField, Typed } from './input-form.ts';
import { typeWords } from './schema.ts';

/** As a form or as JSON, each with what was typed into it. */
export type Draft = { as: 'form' | 'json'; typed: Typed; json: string };

/** Asks for the input of an action: field by field where its schema tells of fields, else as JSON. */
export function InputEditor({
  fields,
  draft,
  flaws,
  onChange,
  onSwitch,
}: {
  fields: FormField[] | undefined;
  draft: Draft;
  /** By field; that of the JSON as a whole under an empty name. */
  flaws: Record<string, string>;
  onChange: (draft: Draft) => void;
  onSwitch: (as: Draft['as']) => void;
}) {
  return (
    <Stack gap="sm">
      <Group justify="space-between">
        <Text fw={600} size="sm">
          Input
        </Text>
        {fields !== undefined && (
          <SegmentedControl
            size="xs"
            aria-label="How to give the input"
            data={[
              { value: 'form', label: 'Form' },
              { value: 'json', label: 'JSON' },
            ]}
            value={draft.as}
            onChange={(as) => onSwitch(as as Draft['as'])}
          />
        )}
      </Group>
      {draft.as === 'json' || fields === undefined ? (
        <JsonInput
          aria-label="Input as JSON"
          placeholder="{}"
          autosize
          minRows={6}
          maxRows={20}
          value={draft.json}
          onChange={(json) => onChange({ ...draft, json })}
          error={flaws['']}
        />
      ) : (
        fields.map((field) => (
          <Asked
            key={field.name}
            field={field}
            value={Object.hasOwn(draft.typed, field.name) ? draft.typed[field.name] : undefined}
            flaw={Object.hasOwn(flaws, field.name) ? flaws[field.name] : undefined}
            onChange={(value) => {
              const rest = Object.entries(draft.typed).filter(([name]) => name !== field.name);
              const typed = value === undefined ? rest : [...rest, [field.name, value] as const];
              onChange({ ...draft, typed: Object.fromEntries(typed) });
            }}
          />
        ))
      )}
    </Stack>
  );
}

function Asked({
  field: { name, schema, isRequired, asked, choices },
  value,
  flaw,
  onChange,
}: {
  field: FormField;
  value: string | boolean | undefined;
  flaw: string | undefined;
  onChange: (value: string | boolean | undefined) => void;
}) {
  const about = typeof schema.description === 'string' ? schema.description : typeWords(schema);
  const common = { label: name, description: about, withAsterisk: isRequired, error: flaw };
  const text = typeof value === 'string' ? value : '';
  switch (asked) {
    case 'switch':
      return (
        <Switch
          label={name}
          description={about}
          checked={value === true}
          onChange={({ currentTarget: { checked } }) => onChange(checked)}
        />
      );
    case 'choice':
      return (
        <NativeSelect
          {...common}
          data={[{ value: '', label: isRequired ? 'Choose one' : 'none' }, ...choices]}
          value={text}
          onChange={({ currentTarget }) => onChange(currentTarget.value || undefined)}
        />
      );
    case 'json':
      return (
        <JsonInput
          {...common}
          autosize
          minRows={2}
          maxRows={12}
          value={text}
          onChange={(typed) => onChange(typed === '' ? undefined : typed)}
        />
      );
    default:
      return (
        <TextInput
          {...common}
          spellCheck={false}
          inputMode={asked === 'number' ? 'decimal' : 'text'}
          value={text}
          onChange={({ currentTarget }) =>
            onChange(currentTarget.value === '' ? undefined : currentTarget.value)
          }
        />
      );
  }
}
