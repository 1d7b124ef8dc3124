import {
  ActionIcon,
  Autocomplete,
  Badge,
  Button,
  Group,
  JsonInput,
  Select,
  SimpleGrid,
  Stack,
  Tabs,
  Text,
  Textarea,
  TextInput,
  Tooltip,
} from '@mantine/core';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { IconPlayerStop, IconPlus, IconSend, IconX } from '../../ui/icons.tsx';
import type { SuggestedApi } from './calls.ts';
import { passOnPrefix } from './queries.ts';
import {
  type Form,
  flawOf,
  flawOfJson,
  formOf,
  hasBody,
  methods,
  type Pair,
  placeholdersIn,
  suggestionOf,
} from './request.ts';

/** The headers of the proxy; docs/guides/proxy.md describes them. */
const ownHeaders = ['Retries', 'Retry-On', 'Timeouts', 'Decompress', 'Quota-Wait', 'Base-Url-Override'];

export function RequestForm({
  form,
  api,
  isRunning,
  mayWrite,
  onChange,
  onSend,
  onCancel,
}: {
  form: Form;
  api: SuggestedApi | null | undefined;
  isRunning: boolean;
  /** Whether the role may use methods other than GET and HEAD. */
  mayWrite: boolean;
  onChange: (form: Form) => void;
  onSend: () => void;
  onCancel: () => void;
}) {
  const chosen = suggestionOf(form, api);
  const flaw = flawOf(form);
  const names = placeholdersIn(form.path);
  const countOf = (pairs: Form['query']) =>
    pairs.filter(({ name, value }) => name !== '' && value !== '').length;
  return (
    <form
      aria-label="Request"
      onSubmit={(event) => {
        event.preventDefault();
        if (!isRunning && flaw === undefined) onSend();
      }}
    >
      <Stack gap="md">
        {api != null && (
          <Select
            label="Start from"
            placeholder="A call of this API"
            searchable
            data={api.calls.map(({ id, title }) => ({ value: id, label: title }))}
            value={chosen?.id ?? null}
            onChange={(id) => {
              const call = api.calls.find((one) => one.id === id);
              if (call !== undefined) onChange(formOf(call, form));
            }}
            description={chosen?.about}
            inputWrapperOrder={['label', 'input', 'description']}
            maxDropdownHeight={560}
            renderOption={({ option }) => {
              const call = api.calls.find(({ id }) => id === option.value);
              return (
                <Stack gap={0} miw={0}>
                  <Group gap={6} wrap="nowrap">
                    <Text size="sm" fw={550}>
                      {option.label}
                    </Text>
                    <Badge color="gray" size="sm">
                      {call?.method}
                    </Badge>
                  </Group>
                  <Text size="xs" c="dimmed">
                    {call?.about}
                  </Text>
                </Stack>
              );
            }}
          />
        )}
        <Group gap="xs" align="flex-start" wrap="nowrap">
          <Select
            w={112}
            flex="none"
            label="Method"
            allowDeselect={false}
            data={methods.map((method) => ({
              value: method,
              label: method,
              disabled: !mayWrite && method !== 'GET' && method !== 'HEAD',
            }))}
            value={form.method}
            onChange={(method) => method !== null && onChange({ ...form, method })}
          />
          <Textarea
            flex={1}
            label="Path"
            placeholder="/v4/..."
            spellCheck={false}
            autosize
            maxRows={5}
            styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)', wordBreak: 'break-all' } }}
            value={form.path}
            onChange={({ currentTarget: { value } }) =>
              onChange({ ...form, path: value.replace(/\s+/g, '') })
            }
            onKeyDown={(event) => {
              if (event.key !== 'Enter') return;
              event.preventDefault();
              event.currentTarget.form?.requestSubmit();
            }}
          />
        </Group>
        {names.length > 0 && (
          <SimpleGrid cols={{ base: 1, xs: 2 }} spacing="xs">
            {names.map((name) => {
              const known = chosen?.fields?.[name];
              return (
                <TextInput
                  key={name}
                  label={name}
                  description={known?.about}
                  inputWrapperOrder={['label', 'input', 'description']}
                  placeholder={known?.example}
                  spellCheck={false}
                  value={form.fields[name] ?? ''}
                  onChange={({ currentTarget: { value } }) =>
                    onChange({ ...form, fields: { ...form.fields, [name]: value } })
                  }
                />
              );
            })}
          </SimpleGrid>
        )}
        <Tabs
          key={`${chosen?.id} ${hasBody(form.method)}`}
          defaultValue={hasBody(form.method) ? 'body' : 'query'}
        >
          <Tabs.List>
            <Tabs.Tab value="query">Query{numbered(countOf(form.query))}</Tabs.Tab>
            <Tabs.Tab value="headers">Headers{numbered(countOf(form.headers))}</Tabs.Tab>
            {hasBody(form.method) && <Tabs.Tab value="body">Body</Tabs.Tab>}
          </Tabs.List>
          <Tabs.Panel value="query" pt="sm">
            <PairsEditor
              what="Parameter"
              pairs={form.query}
              hint="Values are encoded automatically. Parameters without a value are not sent."
              onChange={(query) => onChange({ ...form, query })}
            />
          </Tabs.Panel>
          <Tabs.Panel value="headers" pt="sm">
            <PairsEditor
              what="Header"
              pairs={form.headers}
              known={ownHeaders}
              hint={`The proxy adds the credentials. Retries, Timeouts and the like control the proxy. Other headers are sent to the provider with the prefix ${passOnPrefix()}.`}
              onChange={(headers) => onChange({ ...form, headers })}
            />
          </Tabs.Panel>
          {hasBody(form.method) && (
            <Tabs.Panel value="body" pt="sm">
              <JsonInput
                aria-label="Body as JSON"
                placeholder={'{\n  "values": [["Ada", 1815]]\n}'}
                value={form.body}
                onChange={(body) => onChange({ ...form, body })}
                autosize
                minRows={5}
                maxRows={18}
                error={flawOfJson(form.body)}
              />
            </Tabs.Panel>
          )}
        </Tabs>
        <Group gap="sm">
          {isRunning ? (
            // Keys, because a button that is replaced during its click would submit the form.
            <Button
              key="cancel"
              color="red"
              variant="light"
              leftSection={<IconPlayerStop size={16} />}
              onClick={onCancel}
            >
              Cancel
            </Button>
          ) : (
            <Button
              key="send"
              type="submit"
              leftSection={<IconSend size={16} />}
              disabled={flaw !== undefined}
            >
              Send
            </Button>
          )}
          {!isRunning && flaw !== undefined && form.path !== '' && <Dimmed role="status">{flaw}</Dimmed>}
        </Group>
      </Stack>
    </form>
  );
}

function numbered(count: number): string {
  return count > 0 ? ` (${count})` : '';
}

/** Name-value pairs, such as parameters or headers, with suggested names. */
function PairsEditor({
  what,
  pairs,
  known = [],
  hint,
  onChange,
}: {
  what: string;
  pairs: Pair[];
  known?: string[];
  hint: string;
  onChange: (pairs: Pair[]) => void;
}) {
  const change = (index: number, next: Partial<Pair>) =>
    onChange(pairs.map((pair, at) => (at === index ? { ...pair, ...next } : pair)));
  return (
    <Stack gap="xs">
      <Dimmed>{hint}</Dimmed>
      {pairs.map((pair, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a row is its place in the list; names may repeat
        <Group key={index} gap="xs" wrap="nowrap">
          <Autocomplete
            flex="1 1 50%"
            aria-label={`${what} ${index + 1}: name`}
            placeholder="Name"
            data={known}
            value={pair.name}
            onChange={(name) => change(index, { name })}
          />
          <TextInput
            flex="1 1 50%"
            aria-label={`${what} ${index + 1}: value`}
            placeholder="Value"
            value={pair.value}
            onChange={({ currentTarget: { value } }) => change(index, { value })}
          />
          <Tooltip label="Remove">
            <ActionIcon
              variant="subtle"
              color="gray"
              aria-label={`Remove ${what.toLowerCase()} ${index + 1}`}
              onClick={() => onChange(pairs.filter((_, at) => at !== index))}
            >
              <IconX size={16} />
            </ActionIcon>
          </Tooltip>
        </Group>
      ))}
      <Button
        w="fit-content"
        size="compact-sm"
        variant="default"
        leftSection={<IconPlus size={14} />}
        onClick={() => onChange([...pairs, { name: '', value: '' }])}
      >
        Add a {what.toLowerCase()}
      </Button>
    </Stack>
  );
}
