import {
  ActionIcon,
  Alert,
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
import { Fault } from '../../api/client.ts';
import { Confirm } from '../../ui/Confirm.tsx';
import { Copyable } from '../../ui/Copyable.tsx';
import { FormDialog } from '../../ui/Dialog.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { Fact, Facts } from '../../ui/Facts.tsx';
import {
  IconAlertTriangle,
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
import { signInWaysQuery, useMayWrite } from '../sign-in/queries.ts';
import { useChange } from '../use-change.ts';
import { PlainHttpNotice } from './PlainHttpNotice.tsx';
import {
  changeEndpoint,
  createEndpoint,
  deleteEndpoint,
  type Endpoint,
  type EventType,
  endpointsQuery,
  sendLatest,
  testEndpoint,
  typesQuery,
} from './queries.ts';
import { ReplayDialog } from './ReplayDialog.tsx';
import { addressOf, failureOf, formats, isFailing, kindOf, stateOf } from './words.ts';

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
    stale,
    failed: 'Not done',
  });
  const test = useChange(({ id }: Endpoint) => sendTest(environment, id), {
    done: 'The test was delivered.',
    failed: 'The test was not delivered',
  });
  const latest = useChange((endpoint: Endpoint) => sendLatest(environment, endpoint), {
    stale,
    failed: 'Not done',
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
              retried for three days until your application accepts it. <GuideLink to="endpoints" /> Or send
              alerts to a channel or by e-mail. <GuideLink to="alerts" />
            </EmptyState>
          ) : (
            <>
              <Group justify="space-between">
                <Dimmed flex="1 1 240px">
                  Each endpoint receives the events of a connection in order, at least once; alerts are
                  grouped. Failed deliveries are retried for three days.
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
                              onLatest: () => latest.mutate(endpoint),
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
              Nothing is sent to <b>{chosen && addressOf(chosen.url)}</b> any more. Its queued events are
              dropped
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
  onLatest: () => void;
  onTurn: () => void;
};

/** One endpoint, its state, and its actions. Without `acts` it is read-only. */
function EndpointCard({ endpoint, acts }: { endpoint: Endpoint; acts: EndpointActs | undefined }) {
  const environment = useEnvironment();
  const state = stateOf(endpoint);
  const kind = kindOf(endpoint.kind);
  const { waiting, last_failure: failure, breaker } = endpoint;
  return (
    <Card component="article" aria-label={addressOf(endpoint.url)}>
      <Stack gap="xs">
        <Group justify="space-between" wrap="nowrap">
          <Group gap="xs" miw={0}>
            <Badge color={state.color} variant="dot">
              {state.word}
            </Badge>
            {kind !== undefined && <Badge color="gray">{kind}</Badge>}
            {endpoint.format !== 'standard' && <Badge color="gray">{formats[endpoint.format]}</Badge>}
          </Group>
          {acts !== undefined && <Acts endpoint={endpoint} acts={acts} />}
        </Group>
        <Copyable value={addressOf(endpoint.url)} what="the address" />
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
        <ActionIcon variant="subtle" color="gray" aria-label={`Actions for ${addressOf(endpoint.url)}`}>
          <IconDots size={18} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        {isOwn && (
          <>
            <Menu.Item leftSection={<IconPencil size={16} />} onClick={acts.onEdit}>
              Edit
            </Menu.Item>
            <Menu.Item leftSection={<IconSend size={16} />} onClick={acts.onTest}>
              Send a test
            </Menu.Item>
          </>
        )}
        <Menu.Item leftSection={<IconSend size={16} />} onClick={acts.onLatest} disabled={!endpoint.enabled}>
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

/** Throws if the test did not arrive: the message has the reason. */
async function sendTest(environment: string, id: number): Promise<void> {
  const outcome = await testEndpoint(environment, id);
  if (outcome.delivered) return;
  const { answer } = outcome;
  throw new Error(
    typeof answer === 'string' ? `${failureOf(outcome)} Answer: ${answer}` : failureOf(outcome),
  );
}

type Format = Endpoint['format'];

const destinations: Record<Format, { about: string; label: string; hint: string; example: string }> = {
  standard: {
    about: 'Each event as a signed POST request, for your application',
    label: 'Address',
    hint: 'A public https URL. A service that only this machine can reach also accepts http://localhost.',
    example: 'https://app.example.com/trellis',
  },
  slack: {
    about: 'Alerts as {"text"}, for an incoming webhook of Slack, Mattermost or Google Chat',
    label: 'Address of the incoming webhook',
    hint: 'The whole address is a secret of the channel.',
    example: 'https://hooks.slack.com/services/...',
  },
  email: {
    about: 'Alerts as mail from the mail server of this service',
    label: 'E-mail address',
    hint: 'One address, such as that of a mailing list',
    example: 'ops@example.com',
  },
};

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
  const ways = useQuery(signInWaysQuery());
  const form = useForm({
    onValuesChange: () => save.reset(),
    initialValues: {
      format: endpoint?.format ?? 'standard',
      address: addressOf(endpoint?.url ?? ''),
      description: endpoint?.description ?? '',
      types: endpoint?.types ?? [],
    },
    validate: ({ format, address }) => {
      if (format === 'email')
        return /^\S+@\S+\.\S+$/.test(address.trim()) ? {} : { address: 'Enter one e-mail address' };
      return /^https?:\/\/./.test(address)
        ? {}
        : { address: 'Start with https://, or with http:// for localhost.' };
    },
  });
  const { format, types } = form.values;
  const isAlert = format !== 'standard';
  const save = useChange(
    (given: typeof form.values) => {
      const url = `${given.format === 'email' ? 'mailto:' : ''}${given.address.trim()}`;
      const { description } = given;
      if (endpoint !== undefined)
        return changeEndpoint(environment, { id: endpoint.id, url, description, types: given.types });
      // Without types, an endpoint for alerts gets those that the service selects for alerts.
      const chosen = given.types.length > 0 ? { types: given.types } : {};
      return createEndpoint(environment, { url, format: given.format, description, ...chosen });
    },
    { stale: [[environment, 'endpoints']], after: onClose },
  );
  const fault = save.error instanceof Fault ? save.error : undefined;
  const urlError =
    fault?.code === 'address_not_allowed' ? fault : fault?.fields.find(({ path }) => path === 'url');
  const noMail = ways.data?.mail === false;
  const hasNoMail = format === 'email' && noMail;
  const { label, hint, example } = destinations[format];
  return (
    <FormDialog
      title={endpoint === undefined ? 'Add an endpoint' : 'Edit the endpoint'}
      size="lg"
      act={endpoint === undefined ? 'Add endpoint' : 'Save'}
      attempt={urlError ? { ...save, isError: false } : save}
      button={{ disabled: hasNoMail }}
      isDirty={form.isDirty('address') || form.isDirty('description') || form.isDirty('types')}
      onClose={onClose}
      onSubmit={form.onSubmit((given) => save.mutate(given))}
    >
      {endpoint === undefined && (
        <Radio.Group
          label="Kind"
          value={format}
          onChange={(next) => {
            form.setValues({ format: next as Format, types: [] });
            form.clearErrors();
          }}
        >
          <Stack gap={8} mt={6}>
            {Object.entries(formats).map(([name, word]) => {
              const isOff = noMail && name === 'email';
              const about = isOff
                ? 'This service has no mail server: set SMTP_URL and SMTP_FROM of the service, and restart it.'
                : destinations[name as Format].about;
              return <Radio key={name} value={name} label={word} description={about} disabled={isOff} />;
            })}
          </Stack>
        </Radio.Group>
      )}
      {hasNoMail && (
        <Alert color="yellow" icon={<IconAlertTriangle size={18} />} title="This service has no mail server">
          Set SMTP_URL and SMTP_FROM of the service, and restart it.
        </Alert>
      )}
      <TextInput
        label={label}
        description={hint}
        placeholder={example}
        required
        data-autofocus
        {...form.getInputProps('address')}
        error={form.errors.address ?? (urlError ? urlError.message : undefined)}
      />
      <PlainHttpNotice address={form.values.address} />
      <TextInput label="Description" maxLength={255} {...form.getInputProps('description')} />
      <TypesField
        key={format}
        value={types}
        onChange={(next) => form.setFieldValue('types', next)}
        whole={
          isAlert && endpoint === undefined
            ? 'Problems that need a person: a connection becomes Reconnect needed or Blocked, a sync failed three times in a row, an integration has an error, or an endpoint was disabled'
            : 'All events, including those of later releases'
        }
      />
    </FormDialog>
  );
}

/** The types of events: single types, or groups such as `connection.*`. An empty list means what `whole` names. */
function TypesField({
  value,
  onChange,
  whole,
}: {
  value: string[];
  onChange: (types: string[]) => void;
  whole: string;
}) {
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
          <Radio value="all" label={whole} />
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
