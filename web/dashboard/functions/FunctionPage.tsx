import {
  Badge,
  Button,
  Card,
  Code,
  Group,
  List,
  Select,
  SimpleGrid,
  Skeleton,
  Stack,
  Table,
  Text,
  Title,
} from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { CodeBlock } from '../../ui/CodeBlock.tsx';
import { Confirm } from '../../ui/Confirm.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { Fact, Facts } from '../../ui/Facts.tsx';
import { InlineCode } from '../../ui/InlineCode.tsx';
import { IconPower, IconTrash } from '../../ui/icons.tsx';
import { JsonBlock } from '../../ui/JsonBlock.tsx';
import { ListTable } from '../../ui/ListTable.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { Sliced } from '../../ui/Sliced.tsx';
import { counted } from '../../ui/size.ts';
import { AnchorLink, BackLink, ButtonLink, functionPage, integrationPage } from '../links.tsx';
import { LoadingTabs, PageTabs } from '../PageTabs.tsx';
import type { FunctionSearch } from '../search.ts';
import { useActors } from '../settings/actors.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMay } from '../sign-in/queries.ts';
import {
  codeQuery,
  type FunctionAt,
  type FunctionType,
  functionQuery,
  removeFunction,
  rollBack,
  setEnabled,
  syncsQuery,
  type Version,
  versionsQuery,
  type WholeFunction,
} from './queries.ts';
import { RunsList } from './RunsList.tsx';
import { TypeBadge } from './StateBadge.tsx';
import { SyncsList } from './SyncsTable.tsx';
import { fieldsOf, typeWords } from './schema.ts';
import { TryTab } from './TryTab.tsx';
import { types, whenOf } from './words.ts';

/** One function: its declaration, code, connections, runs and versions. */
export function FunctionPage() {
  const environment = useEnvironment();
  const mayWrite = useMay()('functions:write');
  const { type: given, ...params } = useParams({
    from: '/$environment/functions/of/$integration/$type/$name',
  });
  const at: FunctionAt = { ...params, type: given as FunctionType };
  const search = useSearch({ from: '/$environment/functions/of/$integration/$type/$name' });
  const navigate = useNavigate({ from: '/$environment/functions/of/$integration/$type/$name' });
  const change = (next: FunctionSearch) =>
    void navigate({
      search: (former) => ({ ...former, cursor: undefined, after: undefined, ...next }),
      replace: true,
    });
  const query = useQuery(functionQuery(environment, at));
  const { data: found } = query;
  return (
    <Page
      title={at.name}
      before={
        <BackLink to="/$environment/functions" params={{ environment }} search={{}}>
          Functions
        </BackLink>
      }
      about={
        found ? (
          <Group gap="xs" mt={4}>
            <TypeBadge type={found.type} />
            <Badge color="gray">{at.integration}</Badge>
            <Badge color="gray">version {found.version}</Badge>
            {found.type !== 'action' && <Badge color="gray">{whenOf(found)}</Badge>}
            {!found.enabled && <Badge color="yellow">Off: no run starts</Badge>}
          </Group>
        ) : (
          query.isPending && <Skeleton h={22} w={280} mt={6} />
        )
      }
      actions={mayWrite && found && <FunctionActs at={at} found={found} />}
    >
      <Loaded query={query} loading={<LoadingTabs />}>
        {(loaded) => (
          <PageTabs
            open={search.tab}
            tabs={[
              {
                name: 'declared',
                label: 'Overview',
                content: () => <DeclaredTab found={loaded} integration={at.integration} />,
              },
              { name: 'code', label: 'Code', content: () => <CodeTab at={at} current={loaded.version} /> },
              ...(at.type === 'sync'
                ? [
                    {
                      name: 'syncs',
                      label: 'Connections',
                      content: () => <SyncsList of={at} search={search} onChange={change} />,
                    },
                  ]
                : []),
              ...(at.type === 'action'
                ? [
                    {
                      name: 'try',
                      label: 'Call',
                      content: () => <TryTab at={at} found={loaded} mayCall={mayWrite} />,
                    },
                  ]
                : []),
              {
                name: 'runs',
                label: 'Runs',
                content: () => <RunsList of={at} search={search} onChange={change} />,
              },
              {
                name: 'versions',
                label: 'Versions',
                content: () => <VersionsTab at={at} mayWrite={mayWrite} />,
              },
            ]}
          />
        )}
      </Loaded>
    </Page>
  );
}

/** Turns a function on and off, and removes it. */
function FunctionActs({ at, found: { enabled } }: { at: FunctionAt; found: Pick<WholeFunction, 'enabled'> }) {
  const environment = useEnvironment();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [removed, setRemoved] = useState<FunctionAt>();
  const turn = useMutation({
    mutationFn: () => setEnabled(environment, { ...at, enabled: !enabled }),
    meta: { isShown: true },
    onSuccess: (changed) => {
      const message = changed.enabled
        ? 'The function is on. Runs start as scheduled.'
        : 'The function is off. No run starts.';
      notifications.show({ message, color: 'green' });
    },
    onError: ({ message }) => notifications.show({ title: 'Not changed', message, color: 'red' }),
    onSettled: () =>
      Promise.all([
        queries.invalidateQueries({ queryKey: [environment, 'functions'] }),
        queries.invalidateQueries({ queryKey: [environment, 'syncs'] }),
      ]),
  });
  const remove = useMutation({
    mutationFn: (gone: FunctionAt) => removeFunction(environment, gone),
    onMutate: () => location.pathname,
    onSuccess: async (_answer, _given, from) => {
      if (location.pathname === from)
        await navigate({ to: '/$environment/functions', params: { environment }, search: {} });
      for (const name of ['functions', 'syncs', 'runs'])
        void queries.invalidateQueries({ queryKey: [environment, name] });
    },
  });
  return (
    <>
      <Button
        variant="default"
        leftSection={<IconPower size={16} />}
        loading={turn.isPending}
        onClick={() => turn.mutate()}
      >
        {enabled ? 'Turn off' : 'Turn on'}
      </Button>
      <Button
        variant="light"
        color="red"
        leftSection={<IconTrash size={16} />}
        onClick={() => setRemoved(at)}
      >
        Remove
      </Button>
      <Confirm
        title={`Remove the ${types[at.type].label.toLowerCase()} ${at.name}?`}
        act="Remove permanently"
        given={removed}
        mutation={remove}
        onClose={() => setRemoved(undefined)}
      >
        <WhatGoes at={at} />
      </Confirm>
    </>
  );
}

function WhatGoes({ at }: { at: FunctionAt }) {
  const environment = useEnvironment();
  const versions = useQuery(versionsQuery(environment, at));
  const { integration, name, type } = at;
  const syncs = useQuery({
    ...syncsQuery(environment, { integration_id: integration, function: name, limit: 1 }),
    enabled: type === 'sync',
  });
  const schedules = syncs.data && Object.values(syncs.data.counts).reduce((total, count) => total + count, 0);
  return (
    <Stack gap="xs">
      <Loaded query={versions} loading={<LoadingRows rows={1} height={110} />}>
        {(known) => (
          <>
            <Text>This permanently deletes:</Text>
            <List>
              <List.Item>its code, in {counted(known.length, 'version')}</List.Item>
              {type === 'sync' && (
                <List.Item>
                  {schedules === undefined ? 'its' : counted(schedules, 'schedule')} of connections, with
                  their checkpoints
                </List.Item>
              )}
              <List.Item>its runs and their logs; current runs are stopped</List.Item>
            </List>
            <Dimmed>
              {type === 'sync'
                ? 'Saved records remain. They are no longer updated.'
                : 'Its changes at the provider remain.'}{' '}
              A deploy from a folder that contains the function restores it.
            </Dimmed>
          </>
        )}
      </Loaded>
    </Stack>
  );
}

/** The declaration of a function: its schedule, requirements, state, input and output. */
function DeclaredTab({ found, integration }: { found: WholeFunction; integration: string }) {
  const environment = useEnvironment();
  const { json_schema: schemas, input, returns = [], checkpoint_schema, metadata_schema } = found;
  const schemaOf = (name: string) => schemas?.definitions[name] ?? {};
  const isSync = found.type === 'sync';
  return (
    <Stack gap="lg">
      <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
        <Card>
          <Title order={2} mb="xs">
            About
          </Title>
          {found.description !== '' && (
            <Text size="sm" mb="sm" className="broken">
              <InlineCode>{found.description}</InlineCode>
            </Text>
          )}
          <Facts>
            <Fact name="Runs">{whenOf(found)}</Fact>
            {isSync && (
              <Fact name="Starts">
                {found.auto_start
                  ? 'automatically on each connection'
                  : `manually on each connection, then ${whenOf(found)}`}
              </Fact>
            )}
            {isSync && (
              <Fact name="Deletes">{found.track_deletes ? 'tracked' : 'not tracked automatically'}</Fact>
            )}
            {found.type === 'action' && (
              <Fact name="Access">{found.read_only ? 'read only' : 'can change data at the provider'}</Fact>
            )}
            <Fact name="Integration">
              <AnchorLink inherit {...integrationPage(environment, integration)}>
                {integration}
              </AnchorLink>
            </Fact>
            <Fact name="Deployed">
              <RelativeTime at={found.last_deployed} />
              {`, version ${found.version}`}
              {found.version_label !== '0.0.1' && ` (${found.version_label})`}
            </Fact>
            <Fact name="From">
              {found.source === 'folder' ? 'the functions folder of the service' : 'a deploy'}
            </Fact>
          </Facts>
        </Card>
        <Card>
          <Title order={2} mb="xs">
            Requirements and state
          </Title>
          <Stack gap="sm">
            <div>
              <Dimmed mb={4}>Scopes of the connection</Dimmed>
              {found.scopes.length === 0 ? (
                <Text size="sm">Not declared.</Text>
              ) : (
                <Stack gap={4} align="flex-start">
                  {found.scopes.map((scope) => (
                    <Code key={scope} className="wrap">
                      {scope}
                    </Code>
                  ))}
                </Stack>
              )}
            </div>
            {(found.webhook_subscriptions ?? []).length > 0 && (
              <div>
                <Dimmed mb={4}>Webhooks that it receives</Dimmed>
                <Group gap={6}>
                  {found.webhook_subscriptions?.map((type) => (
                    <Badge key={type} color="gray">
                      {type}
                    </Badge>
                  ))}
                </Group>
              </div>
            )}
            {metadata_schema !== null && (
              <div>
                <Dimmed mb={4}>Metadata of the connection</Dimmed>
                <SchemaTable schema={metadata_schema} />
              </div>
            )}
            {checkpoint_schema !== null && (
              <div>
                <Dimmed mb={4}>Checkpoint, where the next run continues</Dimmed>
                <SchemaTable schema={checkpoint_schema} />
              </div>
            )}
          </Stack>
        </Card>
      </SimpleGrid>
      {input !== undefined && (
        <Schema title="Input" what="the schema of the input" schema={schemaOf(input)} />
      )}
      {returns.map((name) => (
        <Schema
          key={name}
          title={isSync ? `Model ${name}` : 'Output'}
          what={isSync ? `the schema of ${name}` : 'the schema of the output'}
          schema={schemaOf(name)}
        />
      ))}
    </Stack>
  );
}

function Schema({ title, what, schema }: { title: string; what: string; schema: Record<string, unknown> }) {
  return (
    <Card component="section" aria-label={title}>
      <Title order={2} mb="xs">
        {title}
      </Title>
      <SchemaTable schema={schema} />
      <details className="unfold">
        <summary>As JSON Schema</summary>
        <JsonBlock value={schema} what={what} />
      </details>
    </Card>
  );
}

/** The fields of an object schema; for other schemas, the type. */
function SchemaTable({ schema }: { schema: Record<string, unknown> }) {
  const fields = fieldsOf(schema);
  if (fields === undefined || fields.length === 0) {
    return <Text size="sm">{fields === undefined ? typeWords(schema) : 'an object of any fields'}</Text>;
  }
  return (
    <Table.ScrollContainer minWidth={260}>
      <Table>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Field</Table.Th>
            <Table.Th>Type</Table.Th>
            <Table.Th visibleFrom="xs">Required</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {fields.map(({ name, schema: of, isRequired }) => (
            <Table.Tr key={name}>
              <Table.Td ff="monospace" fz="sm" className="wrap">
                {name}
              </Table.Td>
              <Table.Td className="wrap">
                {typeWords(of)}
                {typeof of.description === 'string' && (
                  <Text size="xs" c="dimmed">
                    <InlineCode>{of.description}</InlineCode>
                  </Text>
                )}
              </Table.Td>
              <Table.Td visibleFrom="xs">{isRequired ? 'yes' : 'no'}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

/** The source of a function, in the current or an earlier version. */
function CodeTab({ at, current }: { at: FunctionAt; current: number }) {
  const environment = useEnvironment();
  const { version } = useSearch({ from: '/$environment/functions/of/$integration/$type/$name' });
  const navigate = useNavigate({ from: '/$environment/functions/of/$integration/$type/$name' });
  const query = useQuery(codeQuery(environment, { ...at, version }));
  const { data: versions = [] } = useQuery(versionsQuery(environment, at));
  const shown = version ?? current;
  return (
    <Stack gap="sm">
      {versions.length > 1 && (
        <Group gap="sm">
          <Select
            aria-label="Version"
            w={200}
            allowDeselect={false}
            data={versions.map((one) => ({
              value: String(one.version),
              label: `Version ${one.version}${one.current ? ', current' : ''}`,
            }))}
            value={String(shown)}
            onChange={(next) =>
              void navigate({
                search: { tab: 'code', version: Number(next) === current ? undefined : Number(next) },
                replace: true,
              })
            }
          />
          {shown !== current && <Dimmed>The current version is {current}.</Dimmed>}
        </Group>
      )}
      <Loaded query={query} loading={<LoadingRows rows={1} height={420} />}>
        {(code) => <CodeBlock code={code} what="the code" />}
      </Loaded>
    </Stack>
  );
}

/** The deployed versions, each of which can be activated again. */
function VersionsTab({ at, mayWrite }: { at: FunctionAt; mayWrite: boolean }) {
  const environment = useEnvironment();
  const queries = useQueryClient();
  const query = useQuery(versionsQuery(environment, at));
  const { nameOf } = useActors();
  const [chosen, setChosen] = useState<Version>();
  const back = useMutation({
    mutationFn: ({ version }: Version) => rollBack(environment, { ...at, version }),
    onSuccess: (_, { version }) =>
      notifications.show({ message: `Version ${version} runs from now on.`, color: 'green' }),
    onSettled: () => queries.invalidateQueries({ queryKey: [environment, 'functions'] }),
  });
  return (
    <>
      <Loaded query={query}>
        {(versions) => (
          <Sliced items={versions} size={50}>
            {(shown) => (
              <ListTable
                rows={shown}
                keyOf={(one) => one.version}
                columns={[
                  {
                    title: 'Version',
                    cell: (one) => (
                      <Group gap={8}>
                        <Text span fw={550} size="sm">
                          {one.version}
                        </Text>
                        {one.version_label !== '0.0.1' && (
                          <Text span size="sm" c="dimmed" className="wrap">
                            {one.version_label}
                          </Text>
                        )}
                        {one.current && <Badge color="green">Current</Badge>}
                      </Group>
                    ),
                  },
                  { title: 'Deployed', cell: (one) => <RelativeTime at={one.deployed_at} size="sm" /> },
                  {
                    title: 'By',
                    visibleFrom: 'sm',
                    className: 'wrap',
                    cell: (one) => nameOf(one.deployed_by) ?? one.deployed_by,
                  },
                  {
                    label: 'Actions',
                    cell: (one) => (
                      <Group gap="xs" justify="flex-end">
                        <ButtonLink
                          size="compact-sm"
                          variant="default"
                          aria-label={`Code of version ${one.version}`}
                          {...functionPage(environment, at)}
                          search={{ tab: 'code', ...(!one.current && { version: one.version }) }}
                        >
                          Code
                        </ButtonLink>
                        {mayWrite && !one.current && (
                          <Button
                            size="compact-sm"
                            variant="light"
                            aria-label={`Activate version ${one.version}`}
                            onClick={() => setChosen(one)}
                          >
                            Activate
                          </Button>
                        )}
                      </Group>
                    ),
                  },
                ]}
              />
            )}
          </Sliced>
        )}
      </Loaded>
      <Confirm
        title={`Activate version ${chosen?.version ?? ''}?`}
        act="Activate"
        given={chosen}
        mutation={back}
        onClose={() => setChosen(undefined)}
      >
        <Stack gap="xs">
          <Text>
            New runs use the code, the models and the frequency of this version. Current runs continue with
            the version they started with.
          </Text>
          <Dimmed>The next deploy replaces it with the newest code.</Dimmed>
        </Stack>
      </Confirm>
    </>
  );
}
