import {
  ActionIcon,
  Badge,
  Box,
  Button,
  Card,
  Checkbox,
  Group,
  Menu,
  Radio,
  ScrollArea,
  SimpleGrid,
  Stack,
  Text,
  TextInput,
} from '@mantine/core';
import { useForm } from '@mantine/form';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { Confirm } from '../../ui/Confirm.tsx';
import { Copyable } from '../../ui/Copyable.tsx';
import { FormDialog } from '../../ui/Dialog.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { Fact, Facts } from '../../ui/Facts.tsx';
import {
  IconDots,
  IconPencil,
  IconPlus,
  IconPower,
  IconRepeat,
  IconSend,
  IconTrash,
} from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { AnchorLink, GuideLink } from '../links.tsx';
import { OnlySome } from '../lists.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { useChange } from '../use-change.ts';
import {
  changeEndpoint,
  createEndpoint,
  deleteEndpoint,
  type Endpoint,
  type EndpointInput,
  type EventType,
  endpointsQuery,
  sendLatest,
  typesQuery,
} from './queries.ts';
import { ReplayDialog } from './ReplayDialog.tsx';
import { failureOf, isFailing, kindOf, stateOf } from './words.ts';

type Opened = { dialog: 'edit' | 'replay' | 'delete'; endpoint: Endpoint } | { dialog: 'create' };

export function EndpointsTab() {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const { failing } = useSearch({ from: '/$environment/events' });
  const navigate = useNavigate({ from: '/$environment/events' });
  const query = useQuery(endpointsQuery(environment));
  const [opened, setOpened] = useState<Opened>();
  const close = () => setOpened(undefined);
  const chosen = opened !== undefined && 'endpoint' in opened ? opened.endpoint : undefined;
  const stale = [[environment, 'endpoints']];
  const turn = useChange((change: { id: number; enabled: boolean }) => changeEndpoint(environment, change), {
    ...{ stale, failed: 'Not done' },
  });
  const test = useChange((endpoint: Endpoint) => sendLatest(environment, endpoint), {
    ...{ stale, failed: 'Not done' },
    done: (outcome) =>
      ({
        queued: 'The latest event is queued. Deliveries shows the result.',
        waiting: 'The latest event is already queued for this endpoint.',
        none: 'The feed has no event of the types that this endpoint receives.',
      })[outcome],
  });
  const remove = useChange(({ id }: Endpoint) => deleteEndpoint(environment, id), { stale });
  const add = (
    <Button leftSection={<IconPlus size={16} />} onClick={() => setOpened({ dialog: 'create' })}>
      Add an endpoint
    </Button>
  );
  return (
    <Loaded query={query} loading={<LoadingRows rows={3} height={172} />}>
      {({ endpoints, next_after: more }) => (
        <Stack>
          {endpoints.length === 0 ? (
            <EmptyState
              icon={<IconSend size={26} />}
              title="No endpoint yet"
              action={mayWrite ? add : undefined}
            >
              Add an address of your application. Each event is sent to it as a signed POST request, and
              retried for three days until your application accepts it. <GuideLink to="endpoints" />
            </EmptyState>
          ) : (
            <>
              <Group justify="space-between">
                <Dimmed flex="1 1 240px">
                  Each endpoint receives the events of a connection in order, at least once. Failed deliveries
                  are retried for three days.
                </Dimmed>
                {mayWrite && add}
              </Group>
              {failing && (
                <OnlySome
                  what="endpoints that fail"
                  onAll={() => void navigate({ search: {}, replace: true })}
                />
              )}
              <SimpleGrid cols={{ base: 1, lg: 2 }} spacing="md">
                {endpoints
                  .filter((one) => failing === undefined || isFailing(one))
                  .map((endpoint) => (
                    <EndpointCard
                      key={endpoint.id}
                      endpoint={endpoint}
                      acts={
                        mayWrite
                          ? {
                              onEdit: () => setOpened({ dialog: 'edit', endpoint }),
                              onReplay: () => setOpened({ dialog: 'replay', endpoint }),
                              onDelete: () => setOpened({ dialog: 'delete', endpoint }),
                              onTest: () => test.mutate(endpoint),
                              onTurn: () => turn.mutate({ id: endpoint.id, enabled: !endpoint.enabled }),
                            }
                          : undefined
                      }
                    />
                  ))}
              </SimpleGrid>
              {more !== null && (
                <Dimmed>
                  These are the first {endpoints.length}. GET /events/endpoints lists the endpoints of other
                  connections.
                </Dimmed>
              )}
            </>
          )}
          {(opened?.dialog === 'create' || opened?.dialog === 'edit') && (
            <EndpointDialog endpoint={chosen} onClose={close} />
          )}
          {opened?.dialog === 'replay' && <ReplayDialog endpoints={[opened.endpoint]} onClose={close} />}
          <Confirm
            title="Delete this endpoint?"
            act="Delete endpoint"
            given={opened?.dialog === 'delete' ? chosen : undefined}
            mutation={remove}
            onClose={close}
          >
            <Text className="wrap">
              Nothing is sent to <b>{chosen?.url}</b> any more. Its queued events are dropped
              {chosen !== undefined && chosen.waiting.count > 0 && (
                <>
                  {' '}
                  (<b>{chosen.waiting.count.toLocaleString()}</b> now)
                </>
              )}
              , and its deliveries are no longer listed. The events stay in the feed.
            </Text>
          </Confirm>
        </Stack>
      )}
    </Loaded>
  );
}

type EndpointActs = {
  onEdit: () => void;
  onReplay: () => void;
  onDelete: () => void;
  onTest: () => void;
  onTurn: () => void;
};

/** One endpoint, its state, and its actions. Without `acts` it is read-only. */
function EndpointCard({ endpoint, acts }: { endpoint: Endpoint; acts: EndpointActs | undefined }) {
  const environment = useEnvironment();
  const state = stateOf(endpoint);
  const kind = kindOf(endpoint.kind);
  const { waiting, last_failure: failure, breaker } = endpoint;
  return (
    <Card component="article" aria-label={endpoint.url}>
      <Stack gap="xs">
        <Group justify="space-between" wrap="nowrap">
          <Group gap="xs" miw={0}>
            <Badge color={state.color} variant="dot">
              {state.word}
            </Badge>
            {kind !== undefined && <Badge color="gray">{kind}</Badge>}
          </Group>
          {acts !== undefined && <Acts endpoint={endpoint} acts={acts} />}
        </Group>
        <Copyable value={endpoint.url} what="the address" />
        {endpoint.description !== '' && (
          <Text size="sm" className="wrap">
            {endpoint.description}
          </Text>
        )}
        {state.why !== undefined && (
          <Dimmed>
            {state.why}
            {breaker.state === 'open' && breaker.open_until !== null && (
              <>
                {' '}
                Next probe <RelativeTime at={breaker.open_until} />.
              </>
            )}
          </Dimmed>
        )}
        <Facts>
          <Fact name="Events">
            {kind !== undefined
              ? 'as selected in the settings'
              : endpoint.types.length === 0
                ? 'all'
                : endpoint.types.join(', ')}
          </Fact>
          <Fact name="Last success">
            <RelativeTime at={endpoint.last_success_at} />
          </Fact>
          {failure !== null && (
            <Fact name="Last failure">
              <RelativeTime at={failure.at} />. {failureOf(failure)}
            </Fact>
          )}
          <Fact name="Waiting">
            {waiting.count === 0 ? (
              'nothing'
            ) : (
              <>
                {waiting.is_more ? `more than ${waiting.count - 1}` : waiting.count.toLocaleString()}
                {waiting.since !== null && (
                  <>
                    , the oldest from <RelativeTime at={waiting.since} />
                  </>
                )}
              </>
            )}
          </Fact>
        </Facts>
        <Group gap="sm">
          <AnchorLink
            size="sm"
            to="/$environment/events"
            params={{ environment }}
            search={{ tab: 'deliveries', endpoint: endpoint.id }}
          >
            Deliveries of this endpoint
          </AnchorLink>
          {acts !== undefined && !endpoint.enabled && (
            <Button size="compact-sm" variant="light" onClick={acts.onTurn}>
              Turn on again
            </Button>
          )}
        </Group>
      </Stack>
    </Card>
  );
}

function Acts({ endpoint, acts }: { endpoint: Endpoint; acts: EndpointActs }) {
  const isOwn = endpoint.kind === 'events';
  return (
    <Menu position="bottom-end" width={210}>
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" aria-label={`Actions for ${endpoint.url}`}>
          <IconDots size={18} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        {isOwn && (
          <Menu.Item leftSection={<IconPencil size={16} />} onClick={acts.onEdit}>
            Edit
          </Menu.Item>
        )}
        <Menu.Item leftSection={<IconSend size={16} />} onClick={acts.onTest} disabled={!endpoint.enabled}>
          Send the latest event
        </Menu.Item>
        <Menu.Item leftSection={<IconRepeat size={16} />} onClick={acts.onReplay}>
          Replay a range
        </Menu.Item>
        <Menu.Item leftSection={<IconPower size={16} />} onClick={acts.onTurn}>
          {endpoint.enabled ? 'Turn off' : 'Turn on again'}
        </Menu.Item>
        {isOwn && (
          <>
            <Menu.Divider />
            <Menu.Item color="red" leftSection={<IconTrash size={16} />} onClick={acts.onDelete}>
              Delete
            </Menu.Item>
          </>
        )}
      </Menu.Dropdown>
    </Menu>
  );
}

/** Creates or changes an endpoint. */
function EndpointDialog({
  endpoint,
  onClose,
}: {
  /** The endpoint to change; undefined creates one. */
  endpoint: Endpoint | undefined;
  onClose: () => void;
}) {
  const environment = useEnvironment();
  const form = useForm<EndpointInput>({
    onValuesChange: () => save.reset(),
    initialValues: {
      url: endpoint?.url ?? '',
      description: endpoint?.description ?? '',
      types: endpoint?.types ?? [],
    },
    validate: {
      url: (url) => (/^https?:\/\/./.test(url) ? null : 'Enter an address that starts with https://'),
    },
  });
  const save = useChange(
    (given: EndpointInput) =>
      endpoint === undefined
        ? createEndpoint(environment, given)
        : changeEndpoint(environment, { id: endpoint.id, ...given }),
    { stale: [[environment, 'endpoints']], after: onClose },
  );
  return (
    <FormDialog
      title={endpoint === undefined ? 'Add an endpoint' : 'Edit the endpoint'}
      size="lg"
      act={endpoint === undefined ? 'Add endpoint' : 'Save'}
      attempt={save}
      onClose={onClose}
      onSubmit={form.onSubmit((given) => save.mutate({ ...given, url: given.url.trim() }))}
    >
      <TextInput
        label="Address"
        description="A public https URL. A service that only this machine can reach also accepts http://localhost."
        placeholder="https://app.example.com/trellis"
        required
        data-autofocus
        {...form.getInputProps('url')}
      />
      <TextInput label="Description" maxLength={255} {...form.getInputProps('description')} />
      <TypesField value={form.values.types} onChange={(types) => form.setFieldValue('types', types)} />
    </FormDialog>
  );
}

/** The types of events: all, single types, or groups such as `connection.*`. An empty list means all. */
function TypesField({ value, onChange }: { value: string[]; onChange: (types: string[]) => void }) {
  const environment = useEnvironment();
  const query = useQuery(typesQuery(environment));
  const [wantsSome, setWantsSome] = useState(value.length > 0);
  return (
    <Stack gap="xs">
      <Radio.Group
        label="Events"
        value={wantsSome ? 'some' : 'all'}
        onChange={(next) => {
          setWantsSome(next === 'some');
          if (next === 'all') onChange([]);
        }}
      >
        <Stack gap={6} mt={6}>
          <Radio value="all" label="All events, including those of later releases" />
          <Radio value="some" label="Selected events" />
        </Stack>
      </Radio.Group>
      {wantsSome && (
        <Loaded query={query}>
          {(types) => (
            <ScrollArea.Autosize mah={320} type="auto" className="framed">
              <Stack p="sm" gap="md">
                {kindsOf(types).map(([kind, own]) => (
                  <Kind key={kind} kind={kind} types={own} value={value} onChange={onChange} />
                ))}
              </Stack>
            </ScrollArea.Autosize>
          )}
        </Loaded>
      )}
    </Stack>
  );
}

function Kind({
  kind,
  types,
  value,
  onChange,
}: {
  kind: string;
  types: EventType[];
  value: string[];
  onChange: (types: string[]) => void;
}) {
  const all = `${kind}.*`;
  const hasAll = value.includes(all);
  const others = value.filter((name) => name !== all && !name.startsWith(`${kind}.`));
  const toggle = (name: string) =>
    onChange(value.includes(name) ? value.filter((one) => one !== name) : [...value, name]);
  return (
    <Box>
      <Checkbox
        label={<b>{all}</b>}
        checked={hasAll}
        onChange={() => onChange(hasAll ? others : [...others, all])}
      />
      <Stack gap={8} mt={8} pl="lg">
        {types.map(({ type, meaning }) => (
          <Checkbox
            key={type}
            label={type}
            description={
              <Text span size="xs" c="dimmed">
                {meaning}
              </Text>
            }
            checked={hasAll || value.includes(type)}
            disabled={hasAll}
            onChange={() => toggle(type)}
          />
        ))}
      </Stack>
    </Box>
  );
}

function kindsOf(types: EventType[]): [string, EventType[]][] {
  const kinds = new Map<string, EventType[]>();
  for (const type of types) {
    const kind = type.type.split('.')[0] ?? '';
    kinds.set(kind, [...(kinds.get(kind) ?? []), type]);
  }
  return [...kinds];
}
