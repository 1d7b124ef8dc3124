import {
  ActionIcon,
  Alert,
  Badge,
  Button,
  Card,
  Code,
  Group,
  JsonInput,
  List,
  Progress,
  SimpleGrid,
  Skeleton,
  Stack,
  Text,
  TextInput,
  Title,
} from '@mantine/core';
import { useForm } from '@mantine/form';
import { randomId, useDisclosure } from '@mantine/hooks';
import { useIsMutating, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate, useParams } from '@tanstack/react-router';
import { useState } from 'react';
import { Copyable } from '../../ui/Copyable.tsx';
import { Dialog, DialogEnd } from '../../ui/Dialog.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { Fact, Facts } from '../../ui/Facts.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import {
  IconAlertTriangle,
  IconCheck,
  IconChevronLeft,
  IconCircleX,
  IconPlus,
  IconRefresh,
  IconTrash,
  IconX,
} from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { counted } from '../../ui/size.ts';
import { useNow } from '../../ui/time.ts';
import { sentence } from '../../ui/words.ts';
import { OperationsTable } from '../activity/OperationsTable.tsx';
import { operationsQuery } from '../activity/queries.ts';
import { SyncsCard } from '../functions/SyncsTable.tsx';
import { AnchorLink, integrationPage } from '../links.tsx';
import { DatasetsCard } from '../records/DatasetsCard.tsx';
import type { Dataset } from '../records/queries.ts';
import { SheetsCard } from '../sheets/SheetsCard.tsx';
import { sheetProvider } from '../sheets/settings.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { useChange } from '../use-change.ts';
import { ReconnectButton } from './ConnectDialog.tsx';
import { causeName } from './causes.ts';
import { endUserText } from './EndUser.tsx';
import { HealthBadge } from './HealthBadge.tsx';
import {
  type At,
  type Connection,
  connectionQuery,
  datasetsQuery,
  deleteConnection,
  deletionKey,
  type Health,
  refresh,
  setMetadata,
  setTags,
  type WholeConnection,
} from './queries.ts';

export function ConnectionPage() {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const at: At = useParams({ from: '/$environment/connections/$integration/$id' });
  const isBeingDeleted = useIsMutating({ mutationKey: deletionKey(environment, at) }) > 0;
  const query = useQuery({
    ...connectionQuery(environment, at),
    refetchInterval: isBeingDeleted ? false : 5_000,
  });
  const { data: connection } = query;
  return (
    <Page
      title={connection?.account?.email ?? at.id}
      before={
        <AnchorLink size="sm" c="dimmed" to="/$environment/connections" params={{ environment }} search={{}}>
          <Group gap={4} mb={6}>
            <IconChevronLeft size={14} /> Connections
          </Group>
        </AnchorLink>
      }
      about={
        connection ? (
          <Group gap="xs" mt={4}>
            <HealthBadge health={connection.health} />
            <Badge color="gray">{connection.provider_config_key}</Badge>
            {connection.test && <Badge color="violet">test credentials</Badge>}
          </Group>
        ) : (
          query.isPending && <Skeleton h={22} w={220} mt={6} />
        )
      }
      actions={
        mayWrite &&
        connection && (
          <>
            <RefreshButton at={at} />
            <ReconnectButton at={at} health={connection.health} />
          </>
        )
      }
    >
      <Loaded query={query} loading={<LoadingCards />}>
        {(loaded) => (
          <Stack gap="lg">
            <HealthCard health={loaded.health} />
            {loaded.provider === sheetProvider && <SheetsCard at={at} metadata={loaded.metadata} />}
            <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
              <About connection={loaded} />
              <ScopesCard scopes={loaded.scopes} health={loaded.health} />
              <TokenCard token={loaded.token} health={loaded.health} />
              <TagsCard at={at} tags={loaded.tags} mayWrite={mayWrite} />
              <DatasetsCard at={at} />
              <SyncsCard at={at} />
            </SimpleGrid>
            <MetadataCard at={at} metadata={loaded.metadata} mayWrite={mayWrite} />
            <RecentActivity at={at} />
            {mayWrite && <DeleteConnection at={at} />}
          </Stack>
        )}
      </Loaded>
    </Page>
  );
}

function LoadingCards() {
  return (
    <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg" role="status" aria-label="Loading">
      {['a', 'b', 'c', 'd'].map((card) => (
        <Skeleton key={card} h={230} radius="md" />
      ))}
    </SimpleGrid>
  );
}

function RefreshButton({ at }: { at: At }) {
  const environment = useEnvironment();
  const renew = useChange(() => refresh(environment, at), {
    stale: [[environment, 'connection']],
    done: 'The credentials are refreshed.',
    failed: 'Not refreshed',
  });
  return (
    <Button
      variant="default"
      leftSection={<IconRefresh size={16} />}
      loading={renew.isPending}
      onClick={() => renew.mutate()}
    >
      Refresh now
    </Button>
  );
}

function About({ connection }: { connection: WholeConnection }) {
  const environment = useEnvironment();
  return (
    <Card>
      <Title order={2} mb="xs">
        About
      </Title>
      <Facts>
        <Fact name="Connection ID">
          <Copyable value={connection.connection_id} what="the connection ID" />
        </Fact>
        <Fact name="Integration">
          <AnchorLink inherit {...integrationPage(environment, connection.provider_config_key)}>
            {connection.provider_config_key}
          </AnchorLink>
        </Fact>
        <Fact name="End user">
          {connection.end_user === null ? 'none' : endUserText(connection.end_user)}
        </Fact>
        <Fact name="Connected">
          <RelativeTime at={connection.created_at} />
        </Fact>
        <Fact name="Last used">
          <RelativeTime at={connection.last_used_at} />
        </Fact>
      </Facts>
    </Card>
  );
}

function RecentActivity({ at }: { at: At }) {
  const environment = useEnvironment();
  const filters = { integration_id: at.integration, connection_id: at.id };
  const query = useQuery(operationsQuery(environment, { ...filters, limit: 10 }));
  return (
    <Stack gap="xs">
      <Group justify="space-between">
        <Title order={2}>Latest activity</Title>
        <AnchorLink
          size="sm"
          to="/$environment/activity"
          params={{ environment }}
          search={{ integration: at.integration, connection: at.id }}
        >
          Show all
        </AnchorLink>
      </Group>
      <Loaded query={query}>
        {({ operations }) =>
          operations.length === 0 ? (
            <Dimmed>This connection has no activity yet.</Dimmed>
          ) : (
            <OperationsTable operations={operations} isOfConnection />
          )
        }
      </Loaded>
    </Stack>
  );
}

/** The cause of a problem of a connection, its time, and the next step. Nothing for a healthy connection. */
function HealthCard({ health }: { health: Health }) {
  if (health.cause === null && health.warnings.length === 0) return null;
  const isDead = health.status !== 'active';
  return (
    <Stack gap="sm">
      {health.cause !== null && (
        <Alert
          color={isDead ? 'red' : 'orange'}
          icon={isDead ? <IconCircleX size={18} /> : <IconAlertTriangle size={18} />}
          title={
            <>
              {causeName(health.cause)}
              {health.since !== null && (
                <Text span size="sm" c="dimmed" fw={400}>
                  {' '}
                  since <RelativeTime at={health.since} />
                </Text>
              )}
            </>
          }
        >
          <Stack gap={4}>
            {health.next_step !== null && <Text size="sm">{health.next_step}</Text>}
            <Evidence of={health.evidence} />
          </Stack>
        </Alert>
      )}
      {health.warnings.map((warning) => (
        <Alert
          key={warning.code}
          color="yellow"
          icon={<IconAlertTriangle size={18} />}
          title={
            <>
              {sentence(warning.code)}
              {warning.at !== null && (
                <Text span size="sm" c="dimmed" fw={400}>
                  {' · '}
                  <RelativeTime at={warning.at} />
                </Text>
              )}
            </>
          }
        >
          <Stack gap={4}>
            <Text size="sm">{warning.next_step}</Text>
            <Evidence of={warning.evidence} />
          </Stack>
        </Alert>
      ))}
    </Stack>
  );
}

function Evidence({ of }: { of: Record<string, string | number> | null }) {
  const entries = Object.entries(of ?? {});
  if (entries.length === 0) return null;
  return (
    <Text size="sm" c="dimmed" component="div">
      {entries.map(([name, value]) => (
        <Code key={name} mr={6} className="wrap">
          {name}: {String(value)}
        </Code>
      ))}
    </Text>
  );
}

/** The lifetime of the access token, and of the grant if the provider limits it. */
function TokenCard({ token, health: { status } }: Pick<Connection, 'token' | 'health'>) {
  const isActive = status === 'active';
  return (
    <Card>
      <Title order={2} mb="xs">
        Token
      </Title>
      {token === null || token.expires_at === null ? (
        <Dimmed>These credentials do not expire.</Dimmed>
      ) : (
        <Stack gap="xs">
          <LifeBar from={token.refreshed_at} until={token.expires_at} isActive={isActive} />
          <Dimmed>
            {isActive
              ? 'It is refreshed automatically by the next call that needs it.'
              : 'It cannot be refreshed. The account must be reconnected.'}
          </Dimmed>
          {token.refresh_expires_at !== null && (
            <Text size="sm">
              The grant expires <RelativeTime at={token.refresh_expires_at} fw={550} />.
            </Text>
          )}
        </Stack>
      )}
    </Card>
  );
}

function LifeBar({ from, until, isActive }: { from: string; until: string; isActive: boolean }) {
  const nowMs = useNow();
  const [fromMs, untilMs] = [Date.parse(from), Date.parse(until)];
  const left = Math.min(1, Math.max(0, (untilMs - nowMs) / Math.max(1, untilMs - fromMs)));
  return (
    <>
      <Progress
        value={left * 100}
        size="lg"
        color={!isActive || left === 0 ? 'gray' : left > 0.25 ? 'teal' : 'yellow'}
        aria-label={`${Math.round(left * 100)} percent of its life left`}
      />
      <Group justify="space-between" gap="xs">
        <Text size="sm">
          refreshed <RelativeTime at={from} />
        </Text>
        <Text size="sm">
          {untilMs > nowMs ? 'expires' : 'expired'} <RelativeTime at={until} />
        </Text>
      </Group>
    </>
  );
}

/** The requested and the granted scopes. Grey if the grant has ended. */
function ScopesCard({ scopes, health }: Pick<Connection, 'scopes' | 'health'>) {
  const isActive = health.status === 'active';
  const granted = isActive ? 'granted' : 'was granted';
  const requested = scopes?.requested ?? [];
  const extra = scopes?.granted.filter((scope) => !requested.includes(scope)) ?? [];
  return (
    <Card>
      <Title order={2} mb="xs">
        Scopes
      </Title>
      {requested.length + extra.length === 0 ? (
        <Dimmed>{scopes === null ? 'This kind of connection has no scopes.' : 'No scopes are known.'}</Dimmed>
      ) : (
        <Stack gap={8}>
          {[...requested, ...extra].map((scope) => {
            const isMissing = health.missing_scopes.includes(scope);
            const Icon = isMissing ? IconX : IconCheck;
            const color = isMissing ? 'red-text' : isActive ? 'green-text' : 'dimmed';
            return (
              <Group key={scope} gap="xs" wrap="nowrap" align="flex-start">
                <Icon
                  size={18}
                  className="rigid"
                  color={`var(--mantine-color-${color})`}
                  aria-label={isMissing ? 'not granted' : granted}
                />
                <Text size="sm" ff="monospace" className="wrap" miw={0} {...(!isActive && { c: 'dimmed' })}>
                  {scope}
                </Text>
                {extra.includes(scope) && (
                  <Badge color="gray" flex="none">
                    also granted
                  </Badge>
                )}
              </Group>
            );
          })}
        </Stack>
      )}
    </Card>
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

function TagsEditor({ at, tags, onDone }: { at: At; tags: Record<string, string>; onDone: () => void }) {
  const environment = useEnvironment();
  const row = (name: string, value: string) => ({ key: randomId(), name, value });
  const form = useForm({
    initialValues: {
      rows: Object.keys(tags).length > 0 ? Object.entries(tags).map(([n, v]) => row(n, v)) : [row('', '')],
    },
  });
  const save = useChange(
    ({ rows }: typeof form.values) =>
      setTags(environment, {
        ...at,
        tags: Object.fromEntries(
          rows.filter(({ name }) => name.trim() !== '').map(({ name, value }) => [name.trim(), value.trim()]),
        ),
      }),
    { stale: [[environment, 'connection']], after: onDone },
  );
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
            <Button variant="default" size="sm" onClick={onDone}>
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
  const environment = useEnvironment();
  const [draft, setDraft] = useState<string>();
  const save = useChange(
    (value: Record<string, unknown>) => setMetadata(environment, { ...at, metadata: value }),
    { stale: [[environment, 'connection']], after: () => setDraft(undefined) },
  );
  const parsed = draft === undefined ? undefined : objectOf(draft);
  return (
    <Card>
      <Group justify="space-between" mb="xs">
        <Title order={2}>Metadata</Title>
        {mayWrite && draft === undefined && (
          <Button
            size="compact-sm"
            variant="subtle"
            onClick={() => setDraft(JSON.stringify(metadata, null, 2))}
          >
            Edit
          </Button>
        )}
      </Group>
      {draft === undefined ? (
        Object.keys(metadata).length === 0 ? (
          <Dimmed>No metadata.</Dimmed>
        ) : (
          <Code block tabIndex={0}>
            {JSON.stringify(metadata, null, 2)}
          </Code>
        )
      ) : (
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
          <Group justify="flex-end" gap="xs">
            <Button variant="default" size="sm" onClick={() => setDraft(undefined)}>
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
      )}
    </Card>
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
    onMutate: () => queries.cancelQueries({ queryKey: connectionQuery(environment, at).queryKey }),
    mutationFn: () => deleteConnection(environment, at),
    onSuccess: async () => {
      await navigate({ to: '/$environment/connections', params: { environment }, search: {} });
      await queries.invalidateQueries({ queryKey: [environment, 'connections'] });
    },
  });
  return (
    <Card>
      <Group justify="space-between">
        <Stack gap={2} flex="1 1 260px">
          <Title order={2}>Delete this connection</Title>
          <Dimmed>This destroys its data key. Its data can no longer be decrypted.</Dimmed>
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
