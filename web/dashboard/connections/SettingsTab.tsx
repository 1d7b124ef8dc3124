import {
  ActionIcon,
  Badge,
  Button,
  Card,
  Code,
  Group,
  JsonInput,
  List,
  SimpleGrid,
  Stack,
  Text,
  TextInput,
  Title,
} from '@mantine/core';
import { useForm } from '@mantine/form';
import { randomId, useDisclosure } from '@mantine/hooks';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { ChangedMeanwhile, useChangedMeanwhile } from '../../ui/ChangedMeanwhile.tsx';
import { Dialog, DialogEnd } from '../../ui/Dialog.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { IconPlus, IconTrash } from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { counted } from '../../ui/size.ts';
import { useUnsaved } from '../../ui/unsaved.ts';
import type { Dataset } from '../records/queries.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { useChange } from '../use-change.ts';
import {
  type At,
  connectionQuery,
  datasetsQuery,
  deleteConnection,
  deletionKey,
  setMetadata,
  setTags,
  type WholeConnection,
} from './queries.ts';

/** The tags and the metadata of a connection, and its deletion. */
export function SettingsTab({ at, connection }: { at: At; connection: WholeConnection }) {
  const mayWrite = useMayWrite();
  return (
    <Stack gap="lg">
      <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
        <TagsCard at={at} tags={connection.tags} mayWrite={mayWrite} />
        <MetadataCard at={at} metadata={connection.metadata} mayWrite={mayWrite} />
      </SimpleGrid>
      {mayWrite && <DeleteConnection at={at} />}
    </Stack>
  );
}

const maxTags = 10;

/** Tags, by which connections are found; stored in plain text, unlike metadata. */
function TagsCard({ at, tags, mayWrite }: { at: At; tags: Record<string, string>; mayWrite: boolean }) {
  const [isEditing, setEditing] = useState(false);
  const entries = Object.entries(tags);
  return (
    <Card>
      <Group justify="space-between" mb="xs">
        <Title order={2}>Tags</Title>
        {mayWrite && !isEditing && (
          <Button size="compact-sm" variant="subtle" onClick={() => setEditing(true)} aria-label="Edit tags">
            Edit
          </Button>
        )}
      </Group>
      {isEditing ? (
        <TagsEditor at={at} tags={tags} onDone={() => setEditing(false)} />
      ) : entries.length === 0 ? (
        <Dimmed>No tags. Your application finds connections by their tags.</Dimmed>
      ) : (
        <Group gap={6}>
          {entries.map(([name, value]) => (
            <Badge key={name} color="gray" maw="100%" title={`${name}: ${value}`}>
              {name}: {value}
            </Badge>
          ))}
        </Group>
      )}
    </Card>
  );
}

/** Reads the connection again: a hidden tab does not poll it. */
function useFresh(at: At): () => Promise<WholeConnection> {
  const environment = useEnvironment();
  const queries = useQueryClient();
  return () => queries.fetchQuery({ ...connectionQuery(environment, at), staleTime: 0 });
}

function TagsEditor({ at, tags, onDone }: { at: At; tags: Record<string, string>; onDone: () => void }) {
  const environment = useEnvironment();
  const row = (name: string, value: string) => ({ key: randomId(), name, value });
  const form = useForm({
    initialValues: {
      rows: Object.keys(tags).length > 0 ? Object.entries(tags).map(([n, v]) => row(n, v)) : [row('', '')],
    },
  });
  const read = useFresh(at);
  const { isChanged, isUnseen } = useChangedMeanwhile(tags, async () => (await read()).tags);
  const save = useChange(
    async ({ rows }: typeof form.values) => {
      if (await isUnseen()) return false;
      const named = rows.filter(({ name }) => name.trim() !== '');
      await setTags(environment, {
        ...at,
        tags: Object.fromEntries(named.map(({ name, value }) => [name.trim(), value.trim()])),
      });
      return true;
    },
    { stale: [[environment, 'connection']], after: (isSaved) => isSaved && onDone() },
  );
  const leave = useUnsaved(typedIn(form.values.rows) !== typedIn(form.getInitialValues().rows));
  return (
    <form onSubmit={form.onSubmit((values) => save.mutate(values))}>
      <Stack gap="xs">
        {form.values.rows.map(({ key }, index) => (
          <Group key={key} gap="xs" wrap="nowrap">
            <TextInput
              flex={1}
              aria-label={`Name of tag ${index + 1}`}
              placeholder="plan"
              {...form.getInputProps(`rows.${index}.name`)}
            />
            <TextInput
              flex={1}
              aria-label={`Value of tag ${index + 1}`}
              placeholder="team"
              {...form.getInputProps(`rows.${index}.value`)}
            />
            <ActionIcon
              variant="subtle"
              color="gray"
              aria-label={`Remove tag ${index + 1}`}
              onClick={() => form.removeListItem('rows', index)}
            >
              <IconTrash size={16} />
            </ActionIcon>
          </Group>
        ))}
        {save.isError && <FaultNotice error={save.error} />}
        {isChanged && !save.isPending && <ChangedMeanwhile subject="tags" onDiscard={onDone} />}
        <Group justify="space-between" gap="xs">
          <Button
            variant="subtle"
            size="sm"
            leftSection={<IconPlus size={14} />}
            disabled={form.values.rows.length >= maxTags}
            onClick={() => form.insertListItem('rows', row('', ''))}
          >
            Add a tag
          </Button>
          <Group gap="xs">
            <Button variant="default" size="sm" onClick={() => leave(onDone)}>
              Cancel
            </Button>
            <Button type="submit" size="sm" loading={save.isPending}>
              Save
            </Button>
          </Group>
        </Group>
      </Stack>
    </form>
  );
}

/** The tags of the rows as a text; a row without a name or a value has none. */
function typedIn(rows: { name: string; value: string }[]): string {
  return JSON.stringify(rows.flatMap(({ name, value }) => (name + value === '' ? [] : [[name, value]])));
}

/** The metadata of a connection, edited as a whole. */
function MetadataCard({
  at,
  metadata,
  mayWrite,
}: {
  at: At;
  metadata: Record<string, unknown>;
  mayWrite: boolean;
}) {
  const [isEditing, setEditing] = useState(false);
  return (
    <Card>
      <Group justify="space-between" mb="xs">
        <Title order={2}>Metadata</Title>
        {mayWrite && !isEditing && (
          <Button size="compact-sm" variant="subtle" onClick={() => setEditing(true)}>
            Edit
          </Button>
        )}
      </Group>
      {isEditing ? (
        <MetadataEditor at={at} metadata={metadata} onDone={() => setEditing(false)} />
      ) : Object.keys(metadata).length === 0 ? (
        <Dimmed>No metadata.</Dimmed>
      ) : (
        <Code block tabIndex={0}>
          {JSON.stringify(metadata, null, 2)}
        </Code>
      )}
    </Card>
  );
}

function MetadataEditor({
  at,
  metadata,
  onDone,
}: {
  at: At;
  metadata: Record<string, unknown>;
  onDone: () => void;
}) {
  const environment = useEnvironment();
  const [opened] = useState(JSON.stringify(metadata, null, 2));
  const [draft, setDraft] = useState(opened);
  const read = useFresh(at);
  const { isChanged, isUnseen } = useChangedMeanwhile(metadata, async () => (await read()).metadata);
  const save = useChange(
    async (value: Record<string, unknown>) => {
      if (await isUnseen()) return false;
      await setMetadata(environment, { ...at, metadata: value });
      return true;
    },
    { stale: [[environment, 'connection']], after: (isSaved) => isSaved && onDone() },
  );
  const parsed = objectOf(draft);
  const leave = useUnsaved(draft !== opened);
  return (
    <Stack gap="sm">
      <JsonInput
        aria-label="Metadata as JSON"
        value={draft}
        onChange={setDraft}
        autosize
        minRows={4}
        maxRows={16}
        error={parsed === undefined && 'Enter a JSON object.'}
      />
      {save.isError && <FaultNotice error={save.error} />}
      {isChanged && !save.isPending && <ChangedMeanwhile subject="metadata" onDiscard={onDone} />}
      <Group justify="flex-end" gap="xs">
        <Button variant="default" size="sm" onClick={() => leave(onDone)}>
          Cancel
        </Button>
        <Button
          size="sm"
          disabled={parsed === undefined}
          loading={save.isPending}
          onClick={() => parsed && save.mutate(parsed)}
        >
          Save
        </Button>
      </Group>
    </Stack>
  );
}

function objectOf(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
    return isObject ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

/** Deletion, with a list of what it destroys. */
function DeleteConnection({ at }: { at: At }) {
  const environment = useEnvironment();
  const [isOpen, { open, close }] = useDisclosure();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const datasets = useQuery({ ...datasetsQuery(environment, at), enabled: isOpen });
  const destroy = useMutation({
    mutationKey: deletionKey(environment, at),
    onMutate: async () => {
      const from = location.pathname;
      await queries.cancelQueries({ queryKey: connectionQuery(environment, at).queryKey });
      return from;
    },
    mutationFn: () => deleteConnection(environment, at),
    onSuccess: async (_answer, _given, from) => {
      if (location.pathname === from)
        await navigate({ to: '/$environment/connections', params: { environment }, search: {} });
      await queries.invalidateQueries({ queryKey: [environment, 'connections'] });
    },
  });
  return (
    <Card>
      <Group justify="space-between">
        <Stack gap={2} flex="1 1 260px">
          <Title order={2}>Delete this connection</Title>
          <Dimmed>
            The deletion destroys the data key of the connection, so nobody can decrypt its data.
          </Dimmed>
        </Stack>
        <Button color="red" variant="light" onClick={open}>
          Delete
        </Button>
      </Group>
      <Dialog opened={isOpen} onClose={close} title="Delete this connection?">
        <Stack>
          <Loaded query={datasets} loading={<LoadingRows rows={1} height={148} />}>
            {(known) => (
              <>
                <Text>This permanently deletes:</Text>
                <List>
                  <List.Item>
                    the credentials of the account; its grant is revoked at the provider, unless another
                    connection shares the grant or the provider does not support revocation
                  </List.Item>
                  <List.Item>{recordsOf(known)}</List.Item>
                  <List.Item>metadata, tags and the end user's e-mail</List.Item>
                </List>
              </>
            )}
          </Loaded>
          <DialogEnd
            act="Delete permanently"
            attempt={destroy}
            button={{ color: 'red', disabled: datasets.data === undefined }}
            onClose={close}
            onAct={() => destroy.mutate()}
          />
        </Stack>
      </Dialog>
    </Card>
  );
}

/** Includes deleted records: their payloads are kept until they are pruned. */
function recordsOf(datasets: Dataset[]): string {
  const sum = (pick: (dataset: Dataset) => number) => datasets.reduce((total, one) => total + pick(one), 0);
  const deleted = sum((one) => one.deleted);
  const live = counted(
    sum((one) => one.records),
    'cached record',
  );
  const also = deleted > 0 ? ` and ${counted(deleted, 'deleted one')}` : '';
  return `${live}${also} in ${counted(datasets.length, 'dataset')}`;
}
