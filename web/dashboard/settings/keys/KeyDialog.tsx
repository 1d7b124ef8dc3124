import {
  ActionIcon,
  Alert,
  Button,
  Checkbox,
  Code,
  Fieldset,
  Group,
  NumberInput,
  Select,
  SimpleGrid,
  Stack,
  TagsInput,
  Text,
  TextInput,
} from '@mantine/core';
import { type UseFormReturnType, useForm } from '@mantine/form';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { type ReactNode, type Ref, useRef, useState } from 'react';
import { Fault } from '../../../api/client.ts';
import { CopyButton } from '../../../ui/CopyButton.tsx';
import { Dialog, DialogEnd } from '../../../ui/Dialog.tsx';
import { Dimmed } from '../../../ui/Dimmed.tsx';
import { IconPlus, IconX } from '../../../ui/icons.tsx';
import { localTime } from '../../../ui/local-time.ts';
import { useEnvironment } from '../../shell/environment.ts';
import { useScopes } from '../../sign-in/queries.ts';
import {
  changeKey,
  createKey,
  type Key,
  type KeyInput,
  keysQuery,
  type NewKey,
  type ProxyRule,
} from './queries.ts';
import { groupsOf, type Preset, presets, reservedScopes, scopesOfPreset } from './scopes.ts';

/** `rate` is empty if the key has no limit of its own. */
type Values = {
  name: string;
  scopes: string[];
  rules: ProxyRule[];
  expires: string;
  rate: number | '';
  /** The ID of a key; null: no key. */
  replaces: string | null;
};
const dayMs = 86_400_000;
const usesConsumers = ['records:read', 'records:write', '*'];

type KeyDialogProps = {
  /** The endpoint to change; undefined creates one. */
  editedKey: Key | undefined;
  onClose: () => void;
  onMade: (made: NewKey) => void;
};

/** Creates or changes a key. It can have the scopes of the user at most. */
export function KeyDialog(given: KeyDialogProps) {
  const environment = useEnvironment();
  const { editedKey, onClose } = given;
  return (
    <Dialog
      opened
      onClose={onClose}
      size="xl"
      title={editedKey === undefined ? `Create a key of ${environment}` : `Edit ${editedKey.name}`}
    >
      <KeyForm {...given} />
    </Dialog>
  );
}

function KeyForm({ editedKey, onClose, onMade }: KeyDialogProps) {
  const environment = useEnvironment();
  const queries = useQueryClient();
  const { data: keys = [] } = useQuery(keysQuery(environment));
  const mine = useScopes();
  // A key created on the command line may have more scopes.
  const givable = [
    ...new Set([
      ...mine.filter((scope) => !reservedScopes.includes(scope)),
      ...(editedKey?.scopes ?? []).filter((scope) => scope !== '*'),
    ]),
  ];
  const [first] = useState<Values>(() => ({
    name: editedKey?.name ?? '',
    scopes: editedKey?.scopes ?? [],
    rules: editedKey?.proxy_rules ?? [],
    expires: localTime(editedKey?.expires_at ?? undefined),
    rate: editedKey?.rate_limit ?? '',
    replaces: null,
  }));
  const [preset, setPreset] = useState<Preset | null>(null);
  const scopesHeading = useRef<HTMLParagraphElement>(null);
  const form = useForm<Values>({
    initialValues: first,
    validate: {
      name: (name) => (name.trim() === '' ? 'Enter a name.' : null),
      scopes: (scopes) => (scopes.length === 0 ? 'Choose at least one scope.' : null),
      expires: (at) =>
        at !== '' && at !== first.expires && new Date(at) <= new Date()
          ? 'Enter a time in the future.'
          : null,
      replaces: (replaces, { scopes }) =>
        replaces === null || scopes.some((scope) => usesConsumers.includes(scope))
          ? null
          : 'A key that replaces another key needs records:read or records:write.',
      rules: { path: (path) => (path.startsWith('/') ? null : 'Must start with /') },
    },
  });
  const save = useMutation({
    mutationFn: async ({ name, scopes, rules, expires, rate, replaces }: Values) => {
      const given: KeyInput = {
        name: name.trim(),
        scopes,
        proxy_rules: rules,
        expires_at: expires === '' ? null : new Date(expires).toISOString(),
        rate_limit: rate === '' ? null : rate,
      };
      if (editedKey === undefined)
        return createKey(environment, { ...given, replaces: replaces === null ? null : Number(replaces) });
      // Unchanged fields are not sent, including those that this page cannot show exactly or grant again.
      await changeKey(environment, {
        id: editedKey.id,
        ...(form.isDirty('name') && { name: given.name }),
        ...(form.isDirty('scopes') && { scopes }),
        ...(form.isDirty('rules') && { proxy_rules: rules }),
        ...(form.isDirty('expires') && { expires_at: given.expires_at }),
        ...(form.isDirty('rate') && { rate_limit: given.rate_limit }),
      });
      return undefined;
    },
    onError: (error) => {
      const message = faultOfReplaces(error);
      if (message !== undefined) form.setFieldError('replaces', `This key ${message}.`);
    },
    onSuccess: (made) => {
      onClose();
      if (made !== undefined) onMade(made);
      return queries.invalidateQueries({ queryKey: [environment, 'keys'] });
    },
  });
  const has = (scope: string) => form.values.scopes.includes(scope);
  // The service rejects a change of a key that has more scopes than the user.
  const isWider = form.values.scopes.some((scope) => !mine.includes(scope));
  const endIn = (days: number) =>
    form.setFieldValue('expires', localTime(new Date(Date.now() + days * dayMs)));
  return (
    <form
      onSubmit={form.onSubmit(
        (values) => save.mutate(values),
        ({ scopes }) => {
          if (scopes !== undefined) scopesHeading.current?.focus();
        },
      )}
    >
      <Stack>
        <TextInput
          label="Name"
          description="The application that uses the key"
          placeholder="billing"
          maxLength={255}
          required
          data-autofocus
          {...form.getInputProps('name')}
        />
        {isWider && (
          <WiderThanMine
            onChoose={() =>
              form.setFieldValue('scopes', has('*') ? mine : mine.filter((scope) => has(scope)))
            }
          />
        )}
        {editedKey === undefined && (
          <PresetField
            givable={givable}
            value={preset}
            onChoose={(next) => {
              setPreset(next);
              if (next !== null) form.setFieldValue('scopes', scopesOfPreset(next, givable).given);
            }}
          />
        )}
        <Group align="flex-end" gap="xs">
          <TextInput
            type="datetime-local"
            label="Expires"
            description="Leave empty for a key that does not expire"
            {...form.getInputProps('expires')}
          />
          {[30, 90, 365].map((days) => (
            <Button key={days} variant="default" size="sm" onClick={() => endIn(days)}>
              {days} days
            </Button>
          ))}
          {form.values.expires !== '' && (
            <Button variant="subtle" size="sm" onClick={() => form.setFieldValue('expires', '')}>
              Never
            </Button>
          )}
        </Group>
        <NumberInput
          label="Calls a minute"
          description="The limit over all nodes. Leave empty for the limit of the service"
          placeholder="Limit of the service"
          min={1}
          max={1_000_000}
          allowDecimal={false}
          thousandSeparator=","
          {...form.getInputProps('rate')}
        />
        {editedKey === undefined && keys.length > 0 && (
          <Select
            label="Replaces"
            description="Choose the old key. The new key owns its consumers too, but gets none of its scopes or rules. Revoke the old key when no program uses it any more."
            placeholder="No key"
            clearable
            data={keys.map(({ id, name, hint }) => ({ value: String(id), label: `${name} (…${hint})` }))}
            {...form.getInputProps('replaces')}
          />
        )}
        {!has('*') && (
          <ScopesField
            givable={givable}
            value={form.values.scopes}
            error={form.errors.scopes}
            heading={scopesHeading}
            onChange={(scopes) => form.setFieldValue('scopes', scopes)}
            onReplace={(scopes) => {
              setPreset(null);
              form.setFieldValue('scopes', scopes);
            }}
          />
        )}
        {form.values.scopes.some((scope) => scope.startsWith('proxy:')) && <ProxyRulesField form={form} />}
        <Dimmed>
          A key that reads credentials of connections can only be created on the command line:{' '}
          <code>trellis key create</code>.
        </Dimmed>
        <DialogEnd
          act={editedKey === undefined ? 'Create key' : 'Save'}
          attempt={{ ...save, isError: save.isError && faultOfReplaces(save.error) === undefined }}
          button={{ disabled: isWider }}
          onClose={onClose}
        />
      </Stack>
    </form>
  );
}

/** The error of the choice of the old key; undefined for other errors. */
function faultOfReplaces(error: Error): string | undefined {
  const fields = error instanceof Fault ? error.fields : [];
  return fields.find(({ path }) => path === 'replaces')?.message;
}

/** The change removes scopes that the user cannot add again, so it requires a confirmation. */
function WiderThanMine({ onChoose }: { onChoose: () => void }) {
  return (
    <Alert color="orange" title="This key has scopes that you cannot grant">
      <Stack gap="xs" align="flex-start">
        <Text size="sm">
          Replace it on the command line (trellis key create --replaces), or reduce its scopes here.
          Applications that use the key lose the removed scopes immediately, and you cannot add them again.
        </Text>
        <Button variant="default" size="compact-sm" onClick={onChoose}>
          Reduce to my scopes
        </Button>
      </Stack>
    </Alert>
  );
}

type WithRules = { name: string; scopes: string[]; rules: ProxyRule[]; expires: string };

/** The proxy rules of a key. A deny rule takes precedence; if there are allow rules, other calls are denied. */
function ProxyRulesField({ form }: { form: UseFormReturnType<WithRules> }) {
  const { rules } = form.values;
  const change = (index: number, rule: ProxyRule) =>
    form.setFieldValue(
      'rules',
      rules.map((one, at) => (at === index ? rule : one)),
    );
  return (
    <Stack gap="xs">
      <Stack gap={2}>
        <Text size="sm" fw={500}>
          Proxy rules
        </Text>
        <Text size="xs" c="dimmed">
          Without rules, every call is allowed. If there is an allow rule, other calls are denied. A deny rule
          takes precedence. In a path, <code>*</code> matches a part of a segment, and <code>/**</code> at the
          end matches any number of segments.
        </Text>
      </Stack>
      {rules.map((rule, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: rules have no other name, and their fields hold no state
        <Group key={index} gap="xs" align="flex-start">
          <Select
            aria-label={`Rule ${index + 1}: effect`}
            w={104}
            data={[
              { value: 'allow', label: 'Allow' },
              { value: 'deny', label: 'Deny' },
            ]}
            value={rule.effect}
            allowDeselect={false}
            onChange={(effect) => change(index, { ...rule, effect: effect === 'deny' ? 'deny' : 'allow' })}
          />
          <TagsInput
            aria-label={`Rule ${index + 1}: methods`}
            flex="1 1 150px"
            placeholder={rule.methods === undefined ? 'Every method' : ''}
            data={['GET', 'POST', 'PUT', 'PATCH', 'DELETE']}
            value={rule.methods ?? []}
            onChange={(given) => {
              const { methods: _, ...rest } = rule;
              const methods = given.map((method) => method.toUpperCase());
              change(index, methods.length === 0 ? rest : { ...rest, methods });
            }}
          />
          <TextInput
            aria-label={`Rule ${index + 1}: path`}
            flex="2 1 200px"
            placeholder="/v4/spreadsheets/**"
            value={rule.path}
            error={form.errors[`rules.${index}.path`]}
            onChange={({ currentTarget }) => change(index, { ...rule, path: currentTarget.value })}
          />
          <ActionIcon
            variant="subtle"
            color="gray"
            size="lg"
            aria-label={`Remove rule ${index + 1}`}
            onClick={() => form.removeListItem('rules', index)}
          >
            <IconX size={16} />
          </ActionIcon>
        </Group>
      ))}
      <Button
        variant="default"
        size="compact-sm"
        w="fit-content"
        leftSection={<IconPlus size={14} />}
        onClick={() => form.insertListItem('rules', { effect: 'allow', path: '' })}
      >
        Add a rule
      </Button>
    </Stack>
  );
}

/** Selects the scopes of a new key for a usual purpose. */
function PresetField({
  givable,
  value,
  onChoose,
}: {
  givable: string[];
  value: Preset | null;
  onChoose: (preset: Preset | null) => void;
}) {
  const environment = useEnvironment();
  const lacking = value === null ? [] : scopesOfPreset(value, givable).lacking;
  const command = `trellis key create --environment ${environment} --scopes ${value?.scopes?.join(',')}`;
  return (
    <Stack gap="xs">
      <Select
        label="Preset"
        description={value?.about ?? 'Selects the scopes for a usual purpose'}
        placeholder="No preset"
        data={presets.map(({ name }) => name)}
        value={value?.name ?? null}
        onChange={(name) => onChoose(presets.find((one) => one.name === name) ?? null)}
      />
      {lacking.length > 0 && (
        <Alert color="orange" title={`You cannot grant ${lacking.join(', ')}`}>
          <Stack gap="xs" align="flex-start">
            <Text size="sm">Create this key on the command line:</Text>
            <Code block className="broken">
              {command}
            </Code>
            <CopyButton value={command} what="the command" label="Copy" />
          </Stack>
        </Alert>
      )}
    </Stack>
  );
}

/** The scopes of a key, in groups, each with what it allows. */
export function ScopesField({
  givable,
  value,
  error,
  heading,
  onChange,
  onReplace,
}: {
  givable: string[];
  value: string[];
  error: ReactNode;
  /** Receives the focus if no scope is chosen. */
  heading: Ref<HTMLParagraphElement>;
  onChange: (scopes: string[]) => void;
  /** All or none instead of the chosen ones. */
  onReplace: (scopes: string[]) => void;
}) {
  const toggle = (scope: string) =>
    onChange(value.includes(scope) ? value.filter((one) => one !== scope) : [...value, scope]);
  return (
    <Stack gap="xs">
      <Group justify="space-between">
        <Text size="sm" fw={500} ref={heading} tabIndex={-1}>
          Scopes
        </Text>
        <Group gap={4}>
          <Button variant="subtle" size="compact-sm" onClick={() => onReplace(givable)}>
            All
          </Button>
          <Button variant="subtle" size="compact-sm" onClick={() => onReplace([])}>
            None
          </Button>
        </Group>
      </Group>
      {error !== undefined && (
        <Text size="sm" c="var(--mantine-color-error)" role="alert">
          {error}
        </Text>
      )}
      <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="sm">
        {groupsOf(givable).map(({ name, scopes }) => (
          <Fieldset key={name} legend={name} p="sm">
            <Stack gap={8}>
              {scopes.map(({ scope, about }) => (
                <Checkbox
                  key={scope}
                  label={scope}
                  description={about}
                  checked={value.includes(scope)}
                  onChange={() => toggle(scope)}
                />
              ))}
            </Stack>
          </Fieldset>
        ))}
      </SimpleGrid>
    </Stack>
  );
}
