import { Alert, Button, Group, Modal, NumberInput, Select, Stack, Text, TextInput } from '@mantine/core';
import { useForm } from '@mantine/form';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useRef, useState } from 'react';
import { Fault } from '../../../api/client.ts';
import { FaultNotice } from '../../../ui/FaultNotice.tsx';
import { localTime } from '../../../ui/local-time.ts';
import { useScopes } from '../../sign-in/queries.ts';
import { ProxyRulesField } from './ProxyRulesField.tsx';
import {
  changeKey,
  createKey,
  type Key,
  type KeyInput,
  keysQuery,
  type NewKey,
  type ProxyRule,
} from './queries.ts';
import { ScopesField } from './ScopesField.tsx';

/** `rate` is empty where the key has no limit of its own. */
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

type Given = {
  environment: string;
  /** The one to change; undefined makes one. */
  editedKey: Key | undefined;
  onClose: () => void;
  onMade: (made: NewKey) => void;
};

/** Makes a key, or changes one. It may be given what the user has, and no more. */
export function KeyDialog({
  opened,
  ...given
}: Given & {
  opened: boolean;
}) {
  const { environment, editedKey, onClose } = given;
  return (
    <Modal
      opened={opened}
      onClose={onClose}
      size="xl"
      title={editedKey === undefined ? `Create a key of ${environment}` : `Edit ${editedKey.name}`}
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <KeyForm {...given} />
    </Modal>
  );
}

function KeyForm({ environment, editedKey, onClose, onMade }: Given) {
  const queries = useQueryClient();
  const { data: keys = [] } = useQuery(keysQuery(environment));
  const mine = useScopes();
  // One that was made on the command line may have more.
  const givable = [...new Set([...mine, ...(editedKey?.scopes ?? []).filter((scope) => scope !== '*')])];
  const [first] = useState<Values>(() => ({
    name: editedKey?.name ?? '',
    scopes: editedKey?.scopes ?? [],
    rules: editedKey?.proxy_rules ?? [],
    expires: localTime(editedKey?.expires_at ?? undefined),
    rate: editedKey?.rate_limit ?? '',
    replaces: null,
  }));
  const scopesHeading = useRef<HTMLParagraphElement>(null);
  const form = useForm<Values>({
    initialValues: first,
    validate: {
      name: (name) => (name.trim() === '' ? 'A name, please' : null),
      scopes: (scopes) => (scopes.length === 0 ? 'Choose at least one scope.' : null),
      expires: (at) =>
        at !== '' && at !== first.expires && new Date(at) <= new Date() ? 'A time to come' : null,
      replaces: (replaces, { scopes }) =>
        replaces === null || scopes.some((scope) => usesConsumers.includes(scope))
          ? null
          : 'A key that replaces another one needs records:read or records:write.',
      rules: { path: (path) => (path.startsWith('/') ? null : 'Begins with /') },
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
      // What nobody touched stays as it is stored, also what this page cannot show to the second or give again.
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
  // The service lets nobody change a key into one that may do more than they.
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
          description="Who will call with it"
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
        {!has('*') && (
          <ScopesField
            givable={givable}
            value={form.values.scopes}
            error={form.errors.scopes}
            heading={scopesHeading}
            onChange={(scopes) => form.setFieldValue('scopes', scopes)}
          />
        )}
        {form.values.scopes.some((scope) => scope.startsWith('proxy:')) && <ProxyRulesField form={form} />}
        <Group align="flex-end" gap="xs">
          <TextInput
            type="datetime-local"
            label="Expires"
            description="Empty: it does not end by itself"
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
          description="Over all nodes; empty: as many as the service lets any key make"
          placeholder="No limit of its own"
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
        {save.isError && faultOfReplaces(save.error) === undefined && <FaultNotice error={save.error} />}
        <Text size="sm" c="dimmed">
          Nobody's role may give a key that reads credentials of connections. Such a key is made on the
          command line: <code>trellis key create</code>.
        </Text>
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button type="submit" disabled={isWider} loading={save.isPending}>
            {editedKey === undefined ? 'Create it' : 'Save'}
          </Button>
        </Group>
      </Stack>
    </form>
  );
}

/** What the service says is wrong with the choice of the old key; undefined if something else is wrong. */
function faultOfReplaces(error: Error): string | undefined {
  const fields = error instanceof Fault ? error.fields : [];
  return fields.find(({ path }) => path === 'replaces')?.message;
}

/** A change of such a key takes away what the user cannot give back, so it is never made unasked. */
function WiderThanMine({ onChoose }: { onChoose: () => void }) {
  return (
    <Alert color="orange" title="This key may do more than you">
      <Stack gap="xs" align="flex-start">
        <Text size="sm">
          It is changed on the command line, or here together with its scopes: what it loses by that, an
          application that calls with it loses at once, and no page can give it back.
        </Text>
        <Button variant="default" size="compact-sm" onClick={onChoose}>
          Only what I may do
        </Button>
      </Stack>
    </Alert>
  );
}
