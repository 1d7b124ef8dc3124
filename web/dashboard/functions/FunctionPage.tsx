import { Badge, Group, SimpleGrid, Skeleton, Stack, Tabs } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { BackLink } from '../../ui/BackLink.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Page } from '../../ui/Page.tsx';
import { TabRow } from '../../ui/TabRow.tsx';
import type { FunctionSearch } from '../search.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMay } from '../sign-in/queries.ts';
import { CodeTab } from './CodeTab.tsx';
import { DeclaredTab } from './DeclaredTab.tsx';
import { FunctionActs } from './FunctionActs.tsx';
import { type FunctionAt, type FunctionType, functionQuery } from './queries.ts';
import { RunsList } from './RunsList.tsx';
import { TypeBadge } from './StateBadge.tsx';
import { SyncsTab } from './SyncsTab.tsx';
import { TryTab } from './TryTab.tsx';
import { VersionsTab } from './VersionsTab.tsx';
import { whenOf } from './words.ts';

const tabs = {
  declared: { label: 'What it is', of: ['sync', 'action', 'on-event'] },
  code: { label: 'Code', of: ['sync', 'action', 'on-event'] },
  syncs: { label: 'Connections', of: ['sync'] },
  try: { label: 'Call it', of: ['action'] },
  runs: { label: 'Runs', of: ['sync', 'action', 'on-event'] },
  versions: { label: 'Versions', of: ['sync', 'action', 'on-event'] },
} as const;

/** One function: what it is, its code, where it runs and what came of that. */
export function FunctionPage() {
  const environment = useEnvironment();
  const mayWrite = useMay()('functions:write');
  const { type: given, ...params } = useParams({
    from: '/$environment/functions/of/$integration/$type/$name',
  });
  const at: FunctionAt = { ...params, type: given as FunctionType };
  const search = useSearch({ from: '/$environment/functions/of/$integration/$type/$name' });
  const navigate = useNavigate({ from: '/$environment/functions/of/$integration/$type/$name' });
  const query = useQuery(functionQuery(environment, at));
  const { data: found } = query;
  const shown = Object.entries(tabs).filter(([, { of }]) => of.some((type) => type === at.type));
  const tab = shown.find(([name]) => name === search.tab)?.[0] ?? 'declared';
  return (
    <Page
      title={at.name}
      before={
        <BackLink
          link={(props) => (
            <Link to="/$environment/functions" params={{ environment }} search={{}} {...props} />
          )}
        >
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
      actions={mayWrite && found && <FunctionActs environment={environment} at={at} found={found} />}
    >
      <Loaded query={query} loading={<LoadingTabs />}>
        {(loaded) => (
          <Tabs
            value={tab}
            keepMounted={false}
            onChange={(next) =>
              void navigate({ search: next === 'declared' ? {} : { tab: next as FunctionSearch['tab'] } })
            }
          >
            <TabRow open={tab}>
              {shown.map(([name, { label }]) => (
                <Tabs.Tab key={name} value={name}>
                  {label}
                </Tabs.Tab>
              ))}
            </TabRow>
            <Tabs.Panel value="declared">
              <DeclaredTab found={loaded} environment={environment} integration={at.integration} />
            </Tabs.Panel>
            <Tabs.Panel value="code">
              <CodeTab environment={environment} at={at} current={loaded.version} />
            </Tabs.Panel>
            <Tabs.Panel value="syncs">
              <SyncsTab environment={environment} at={at} />
            </Tabs.Panel>
            <Tabs.Panel value="try">
              <TryTab environment={environment} at={at} found={loaded} mayCall={mayWrite} />
            </Tabs.Panel>
            <Tabs.Panel value="runs">
              <RunsList
                environment={environment}
                of={at}
                search={search}
                onChange={(next) =>
                  void navigate({
                    search: (former) => ({ ...former, cursor: undefined, ...next }),
                    replace: true,
                  })
                }
                older={(cursor, looks) => (
                  <Link
                    to="/$environment/functions/of/$integration/$type/$name"
                    params={{ environment, ...at }}
                    search={{ ...search, cursor }}
                    {...looks}
                  />
                )}
              />
            </Tabs.Panel>
            <Tabs.Panel value="versions">
              <VersionsTab environment={environment} at={at} mayWrite={mayWrite} />
            </Tabs.Panel>
          </Tabs>
        )}
      </Loaded>
    </Page>
  );
}

/** The row of tabs and the first two cards. */
function LoadingTabs() {
  return (
    <Stack gap="lg" role="status" aria-label="Loading">
      <Skeleton h={38} radius="md" />
      <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
        <Skeleton h={270} radius="md" />
        <Skeleton h={270} radius="md" />
      </SimpleGrid>
    </Stack>
  );
}
