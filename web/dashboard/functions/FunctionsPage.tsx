import {
  Badge,
  Box,
  Button,
  Card,
  Center,
  Code,
  Group,
  List,
  Stack,
  Text,
  ThemeIcon,
  Title,
} from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { Fault } from '../../api/client.ts';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { Dialog } from '../../ui/Dialog.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { InlineCode } from '../../ui/InlineCode.tsx';
import { IconCloudUpload, IconFunction, IconPower } from '../../ui/icons.tsx';
import { ListTable } from '../../ui/ListTable.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { NumberedPages } from '../../ui/NumberedPages.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { functionPage, GuideLink } from '../links.tsx';
import { defined, type Filter, FilterBar, hasNoEntries, NoMatch } from '../lists.tsx';
import { PageTabs } from '../PageTabs.tsx';
import type { FunctionsSearch } from '../search.ts';
import { useEnvironment } from '../shell/environment.ts';
import { functionsQuery, type ListedFunction } from './queries.ts';
import { RunsList } from './RunsList.tsx';
import { RunBadge, TypeBadge } from './StateBadge.tsx';
import { SyncsList } from './SyncsTable.tsx';
import { types, whenOf } from './words.ts';

export function FunctionsPage() {
  const search = useSearch({ from: '/$environment/functions' });
  const navigate = useNavigate({ from: '/$environment/functions' });
  const [isOpen, { open, close }] = useDisclosure();
  const change = (next: FunctionsSearch) =>
    void navigate({
      search: (former) => ({ ...former, cursor: undefined, after: undefined, ...next }),
      replace: true,
    });
  return (
    <Page
      title="Functions"
      about={
        <>
          Your code that runs in this service: syncs update the cache of records, actions respond to calls,
          and event functions run on connection events. <GuideLink to="functions" />
        </>
      }
      actions={
        <Button variant="default" leftSection={<IconCloudUpload size={16} />} onClick={open}>
          How to deploy
        </Button>
      }
    >
      <PageTabs
        open={search.tab}
        tabs={[
          { name: 'deployed', label: 'Deployed', content: () => <FunctionsTab /> },
          {
            name: 'syncs',
            label: 'Syncs',
            content: () => <SyncsList of={undefined} search={search} onChange={change} />,
          },
          {
            name: 'runs',
            label: 'Runs',
            content: () => <RunsList of={undefined} search={search} onChange={change} />,
          },
        ]}
      />
      <Dialog opened={isOpen} onClose={close} title="How to deploy" size="lg">
        <DeployHelp />
      </Dialog>
    </Page>
  );
}

const pageSize = 50;

const filters: (Filter<FunctionsSearch> | 'integration')[] = [
  { name: 'search', label: 'Search functions', placeholder: 'Name' },
  'integration',
  {
    name: 'type',
    label: 'Kind',
    placeholder: 'Every kind',
    options: Object.entries(types).map(([value, { label }]) => ({ value, label })),
  },
  {
    name: 'enabled',
    label: 'On or off',
    options: [
      { value: 'on', label: 'On' },
      { value: 'off', label: 'Off' },
    ],
  },
];

/** The functions of the environment that match the filters. */
function FunctionsTab() {
  const environment = useEnvironment();
  const search = useSearch({ from: '/$environment/functions' });
  const navigate = useNavigate({ from: '/$environment/functions' });
  const page = search.page ?? 0;
  const functions = useQuery(
    functionsQuery(environment, {
      ...defined({ search: search.search, integration_id: search.integration, type: search.type }),
      ...(search.enabled !== undefined && { enabled: search.enabled === 'on' ? 'true' : 'false' }),
      page,
      limit: pageSize,
    }),
  );
  const change = (next: FunctionsSearch) =>
    void navigate({ search: (former) => ({ ...former, page: undefined, ...next }), replace: true });
  const { error } = functions;
  if (functions.data === undefined && error instanceof Fault && error.code === 'functions_off') {
    return (
      <EmptyState icon={<IconPower size={26} />} title="Functions are turned off">
        The service was started with <code>TRELLIS_FUNCTIONS=off</code>. Start it without this setting to run
        the deployed functions again.
      </EmptyState>
    );
  }
  const isFiltered =
    search.search !== undefined ||
    search.integration !== undefined ||
    search.type !== undefined ||
    search.enabled !== undefined;
  const hasNone = page === 0 && hasNoEntries(functions, ({ data }) => data);
  return (
    <Stack>
      <FilterBar search={search} filters={filters} isEmpty={hasNone} onChange={change} />
      <Loaded query={functions}>
        {({ data, pagination: { total } }) =>
          hasNone && !isFiltered ? (
            <NoFunctions />
          ) : data.length === 0 ? (
            <NoMatch
              icon={<IconFunction size={26} />}
              onClear={() => void navigate({ search: {}, replace: true })}
            >
              No function matches these filters.
            </NoMatch>
          ) : (
            <Stack>
              <FunctionsTable functions={data} />
              <NumberedPages
                page={page}
                size={pageSize}
                shown={data.length}
                total={total}
                onPage={(next) => change({ page: next || undefined })}
              />
            </Stack>
          )
        }
      </Loaded>
    </Stack>
  );
}

function NoFunctions() {
  return (
    <Center py="md">
      <Card maw={640} w="100%">
        <Group mb="sm">
          <ThemeIcon size={44} radius="xl" variant="light">
            <IconFunction size={24} />
          </ThemeIcon>
          <Title order={2}>No function is deployed yet</Title>
        </Group>
        <DeployHelp />
      </Card>
    </Center>
  );
}

/** A list of functions. Each row is a link to the function. */
export function FunctionsTable({
  functions,
  isOfIntegration = false,
}: {
  functions: ListedFunction[];
  /** All are of one integration, which is not shown. */
  isOfIntegration?: boolean;
}) {
  const environment = useEnvironment();
  return (
    <ListTable
      rows={functions}
      keyOf={({ id }) => id}
      rowClass="fill-row"
      columns={[
        {
          title: 'Function',
          maw: 420,
          cell: ({ name, type, integration_id: integration, description, enabled, ...of }) => (
            <>
              <Group gap={8}>
                <Link className="fill-link" {...functionPage(environment, { integration, type, name })}>
                  <Text span fw={550} size="sm" className="wrap">
                    {name}
                  </Text>
                </Link>
                <TypeBadge type={type} />
                {!enabled && <Badge color="gray">Off</Badge>}
              </Group>
              {description !== '' && (
                <Text size="xs" c="dimmed" lineClamp={1} visibleFrom="sm">
                  <InlineCode>{description}</InlineCode>
                </Text>
              )}
              {!isOfIntegration && (
                <Text size="xs" c="dimmed" hiddenFrom="sm" className="wrap">
                  {integration}
                </Text>
              )}
              <Group hiddenFrom="xs" gap={6} mt={4}>
                <LastRun last={of.last_run} />
                {of.failures > 0 && <Failures count={of.failures} />}
              </Group>
            </>
          ),
        },
        !isOfIntegration && {
          title: 'Integration',
          visibleFrom: 'sm',
          maw: 200,
          cell: ({ integration_id: integration }) => (
            <Text size="sm" truncate title={integration}>
              {integration}
            </Text>
          ),
        },
        { title: 'Runs', visibleFrom: 'md', cell: (of) => <Text size="sm">{whenOf(of)}</Text> },
        !isOfIntegration && { title: 'Version', visibleFrom: 'lg', cell: ({ version }) => version },
        { title: 'Last run', visibleFrom: 'xs', cell: ({ last_run: last }) => <LastRun last={last} /> },
        {
          title: 'Failures',
          heading: { title: 'In the last 24 hours' },
          visibleFrom: 'sm',
          ta: 'right',
          cell: ({ failures }) => (failures > 0 ? <Failures count={failures} /> : '0'),
        },
      ]}
    />
  );
}

function LastRun({ last }: { last: ListedFunction['last_run'] }) {
  if (last === null) {
    return <Dimmed className="unbroken">never ran</Dimmed>;
  }
  return (
    <Group gap={6} wrap="nowrap">
      <RunBadge state={last.state} />
      <Box fz="sm" pos="relative" w="fit-content" className="unbroken">
        <RelativeTime at={last.ended_at ?? last.queued_at} />
      </Box>
    </Group>
  );
}

function Failures({ count }: { count: number }) {
  return (
    <Badge color="red" aria-label={`${count.toLocaleString()} failed in 24 hours`}>
      {count >= 1_000 ? '1,000 or more' : count.toLocaleString()}
    </Badge>
  );
}

const begin = 'npx trellis init ./functions';

/** How functions are deployed. No role of the dashboard can deploy, because deployed code can read all data. */
function DeployHelp() {
  const environment = useEnvironment();
  return (
    <Stack gap="md" ta="left">
      <Text size="sm">
        A function is a TypeScript file. You deploy it from the command line, with a key that may deploy.
        Users of the dashboard cannot change the code that runs.
      </Text>
      <Text size="sm">
        Functions for Google Sheets are part of the service: add a sheet on the page of a Google Sheets
        connection. <GuideLink to="sheets" />
      </Text>
      <List type="ordered" spacing="md" size="sm" styles={{ itemWrapper: { display: 'block' } }}>
        <List.Item>
          Create a folder with one example of each kind, and edit it:
          <Snippet text={begin} what="the command that makes a folder" />
          <Dimmed mt={6} className="wrap">
            The path of a file gives its kind and name:{' '}
            <code>functions/google-sheet/syncs/sheet-rows.ts</code> is the sync <code>sheet-rows</code> of the
            integration <code>google-sheet</code>.
          </Dimmed>
        </List.Item>
        <List.Item>
          On the server, create a key that may deploy to {environment}:
          <Snippet
            text={`npx trellis key create --environment ${environment} --name deploy --scopes functions:deploy`}
            what="the command that makes a key"
          />
        </List.Item>
        <List.Item>
          Deploy with this key:
          <Snippet
            text={`export TRELLIS_URL=${location.origin}\nexport TRELLIS_SECRET_KEY=…\nnpx trellis deploy ./functions`}
            what="the commands that deploy"
          />
        </List.Item>
      </List>
      <Dimmed>
        In development, the folder <code>functions</code> in the working directory of the service is deployed
        to <code>dev</code> when you save a file.
      </Dimmed>
    </Stack>
  );
}

function Snippet({ text, what }: { text: string; what: string }) {
  return (
    <Box pos="relative" mt={6}>
      <Code block tabIndex={0} pr={44} className="broken" aria-label={what}>
        {text}
      </Code>
      <Box pos="absolute" top={4} right={6}>
        <CopyButton value={text} what={what} />
      </Box>
    </Box>
  );
}
