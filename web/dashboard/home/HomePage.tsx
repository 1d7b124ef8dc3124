import {
  Alert,
  Badge,
  Box,
  Card,
  Group,
  SegmentedControl,
  SimpleGrid,
  Skeleton,
  Stack,
  Text,
  Title,
} from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link, type LinkProps, useNavigate, useSearch } from '@tanstack/react-router';
import { IconCheck, IconChecklist } from '../../ui/icons.tsx';
import { ListTable } from '../../ui/ListTable.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { Sliced } from '../../ui/Sliced.tsx';
import { counted, upTo } from '../../ui/size.ts';
import { causeName } from '../connections/causes.ts';
import { hostOf } from '../events/words.ts';
import { progressQuery, stepsLeft } from '../getting-started/queries.ts';
import { QuotaBar } from '../integrations/QuotaBar.tsx';
import { AnchorLink, functionPage, integrationPage } from '../links.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { ProxiedCard } from './ProxiedCard.tsx';
import { countProblems, type Health, healthQuery, type StateCounts, stateCountsQuery } from './queries.ts';

type To = Pick<LinkProps, 'to' | 'params' | 'search'>;
/** From this share on, the use of a quota is a problem. */
const highUse = 0.8;

/** The state of the environment: what does not work, and the proxied calls of a day or of two weeks. */
export function HomePage() {
  const environment = useEnvironment();
  const query = useQuery(healthQuery(environment));
  const counts = useQuery(stateCountsQuery(environment));
  const { span = '24 hours' } = useSearch({ from: '/$environment/home' });
  const navigate = useNavigate({ from: '/$environment/home' });
  return (
    <Page title="Home">
      <SetUpLeft />
      <Loaded query={query} loading={<LoadingHealth />}>
        {(health) => (
          <>
            <Figures health={health} />
            <SimpleGrid cols={{ base: 1, lg: health.quotas.length > 0 ? 2 : 1 }} spacing="md">
              <Stack component="section" aria-label="Needs attention" gap="xs">
                <Title order={2}>Needs attention</Title>
                <Loaded query={counts} loading={<LoadingRows rows={1} height={46} />}>
                  {(states) => (
                    <Problems
                      problems={problemsOf(health, states, environment)}
                      unverified={states.unverified}
                    />
                  )}
                </Loaded>
              </Stack>
              {health.quotas.length > 0 && <Quotas quotas={health.quotas} />}
            </SimpleGrid>
          </>
        )}
      </Loaded>
      <ProxiedCard title="Proxied calls" span={span}>
        <SegmentedControl
          size="xs"
          aria-label="Time range"
          data={['24 hours', '14 days']}
          value={span}
          onChange={(next) =>
            void navigate({ search: { span: next === '14 days' ? next : undefined }, replace: true })
          }
        />
      </ProxiedCard>
    </Page>
  );
}

/** The steps of "Getting started" that are left; nothing after the last one. */
function SetUpLeft() {
  const environment = useEnvironment();
  const { data } = useQuery({ ...progressQuery(environment), refetchInterval: 30_000, staleTime: 30_000 });
  const left = data === undefined ? [] : stepsLeft(data);
  if (left.length === 0) return null;
  return (
    <Alert role="note" icon={<IconChecklist size={18} />} py="xs">
      {counted(left.length, 'step')} of{' '}
      <AnchorLink inherit underline="always" to="/$environment/getting-started" params={{ environment }}>
        Getting started
      </AnchorLink>{' '}
      left: {left.join(', ').toLowerCase()}.
    </Alert>
  );
}

/** A number for each state; each is a link to the list of what it counts. */
function Figures({ health }: { health: Health }) {
  const environment = useEnvironment();
  const { syncs, endpoints, integrations } = countProblems(health);
  const { active, needs_reauth: dead, blocked } = health.connections;
  const params = { environment };
  const connectionsBy = (status: 'active' | 'needs_reauth' | 'blocked'): To => ({
    to: '/$environment/connections',
    params,
    search: { status },
  });
  const figures: { label: string; count: number; isBad?: boolean; to: To }[] = [
    { label: 'Active connections', count: active, to: connectionsBy('active') },
    { label: 'Reconnect needed', count: dead, isBad: true, to: connectionsBy('needs_reauth') },
    { label: 'Blocked connections', count: blocked, isBad: true, to: connectionsBy('blocked') },
    {
      label: 'Failing syncs',
      count: syncs,
      isBad: true,
      to: { to: '/$environment/functions', params, search: { tab: 'syncs', is: 'failing' } },
    },
    {
      label: 'Failing endpoints',
      count: endpoints,
      isBad: true,
      to: { to: '/$environment/events', params, search: { failing: true } },
    },
    {
      label: 'Integration errors',
      count: integrations,
      isBad: true,
      to: { to: '/$environment/integrations', params, search: { faulty: true } },
    },
  ];
  return (
    <SimpleGrid cols={{ base: 2, sm: 3, lg: 6 }} spacing="sm">
      {figures.map(({ label, count, isBad, to }) => (
        <Card key={label} className="fill-row" p="sm">
          <Text
            fz={26}
            lh={1.2}
            fw={650}
            {...(isBad && (count > 0 ? { c: 'var(--mantine-color-error)' } : { c: 'dimmed' }))}
          >
            {upTo(count)}
          </Text>
          <Link className="fill-link" {...to} aria-label={`${label}: ${upTo(count)}`}>
            <Text span size="xs" c="dimmed">
              {label}
            </Text>
          </Link>
        </Card>
      ))}
    </SimpleGrid>
  );
}

type Problem = { of: string; color: 'red' | 'orange' | 'yellow'; text: string; since: string | null; to: To };

/** What does not work, what affects most connections first. */
function problemsOf(health: Health, counts: StateCounts, environment: string): Problem[] {
  const params = { environment };
  const { needs_reauth, blocked } = health.connections;
  const connections = [
    { status: 'needs_reauth', count: needs_reauth, color: 'red', text: 'reconnect needed' },
    { status: 'blocked', count: blocked, color: 'red', text: 'blocked' },
    { status: 'scopes_missing', count: counts.scopes_missing, color: 'yellow', text: 'with missing scopes' },
    {
      status: 'provider_unavailable',
      count: counts.provider_unavailable,
      color: 'yellow',
      text: 'whose provider is unavailable',
    },
  ] as const;
  return [
    ...health.integrations.map(
      ({ integration_id: key, display_name: name, cause, since }): Problem => ({
        of: 'Integration',
        color: 'red',
        text: `${name}: ${causeName(cause)}`,
        since,
        to: integrationPage(environment, key),
      }),
    ),
    ...health.quotas
      .filter(({ used, limit, closed_until }) => closed_until !== null || used >= limit * highUse)
      .map(
        ({ integration_id: key, used, limit, closed_until }): Problem => ({
          of: 'Quota',
          color: closed_until === null ? 'yellow' : 'orange',
          since: null,
          text:
            closed_until === null
              ? `${key}: ${Math.round((100 * used) / limit)}% used`
              : `${key}: refused by the provider`,
          to: integrationPage(environment, key),
        }),
      ),
    ...health.endpoints.map(
      ({ id, url, disabled, failures, failing_since }): Problem => ({
        of: 'Endpoint',
        color: disabled ? 'red' : 'orange',
        since: failing_since,
        text: `${hostOf(url)}: ${disabled ? 'disabled' : counted(failures, 'failed attempt')}`,
        to: {
          to: '/$environment/events',
          params,
          search: { tab: 'deliveries', endpoint: id, status: 'waiting' },
        },
      }),
    ),
    ...health.syncs.map(
      ({ integration_id: integration, function: name, failing }): Problem => ({
        of: 'Sync',
        color: 'red',
        since: null,
        text: `${name} of ${integration}: fails for ${counted(failing, 'connection')}`,
        to: {
          ...functionPage(environment, { integration, type: 'sync', name }),
          search: { tab: 'syncs', is: 'failing' },
        },
      }),
    ),
    ...connections
      .filter(({ count }) => count > 0)
      .map(
        ({ status, count, color, text }): Problem => ({
          of: 'Connection',
          color,
          text: `${upTo(count)} ${text}`,
          since: null,
          to: { to: '/$environment/connections', params, search: { status } },
        }),
      ),
  ];
}

/** How many connections have credentials that nothing proves, as a link to them. */
function Unverified({ count }: { count: number }) {
  const environment = useEnvironment();
  return (
    <>
      <AnchorLink
        inherit
        underline="always"
        to="/$environment/connections"
        params={{ environment }}
        search={{ status: 'unverified' }}
      >
        {upTo(count)} {count === 1 ? 'connection is' : 'connections are'} not verified
      </AnchorLink>
      .
    </>
  );
}

function Problems({ problems, unverified }: { problems: Problem[]; unverified: number }) {
  if (problems.length === 0)
    return (
      <Card py="sm">
        <Group gap="xs" wrap="nowrap">
          <IconCheck size={18} className="rigid" color="var(--mantine-color-teal-6)" />
          <Text size="sm">
            {unverified === 0 ? (
              'Everything works.'
            ) : (
              <>
                Nothing fails. <Unverified count={unverified} />
              </>
            )}
          </Text>
        </Group>
      </Card>
    );
  return (
    <>
      <Sliced items={problems} size={10}>
        {(shown) => (
          <ListTable
            rows={shown}
            keyOf={({ of, text }) => `${of} ${text}`}
            rowClass="fill-row"
            columns={[
              {
                title: 'Problem',
                cell: ({ text, to, color, of }) => (
                  <Group gap="sm" wrap="nowrap">
                    <Box w={124} className="rigid">
                      <Badge color={color} variant="dot">
                        {of}
                      </Badge>
                    </Box>
                    <Link className="fill-link" {...to}>
                      <Text span size="sm" className="wrap">
                        {text}
                      </Text>
                    </Link>
                  </Group>
                ),
              },
              {
                title: 'Since',
                visibleFrom: 'xs',
                ta: 'right',
                className: 'unbroken',
                cell: ({ since }) => since && <RelativeTime at={since} size="sm" className="above" />,
              },
            ]}
          />
        )}
      </Sliced>
      {unverified > 0 && (
        <Text size="sm">
          <Unverified count={unverified} />
        </Text>
      )}
    </>
  );
}

/** The limits with the largest share in use. */
function Quotas({ quotas }: { quotas: Health['quotas'] }) {
  const environment = useEnvironment();
  return (
    <Stack component="section" aria-label="Quotas" gap="xs">
      <Title order={2}>Quotas</Title>
      <Card>
        <Stack gap="sm">
          {quotas.slice(0, 4).map((quota) => (
            <QuotaBar
              key={`${quota.integration_id} ${quota.name}`}
              quota={quota}
              of={
                <>
                  <AnchorLink inherit {...integrationPage(environment, quota.integration_id)}>
                    {quota.integration_id}
                  </AnchorLink>
                  {' · '}
                </>
              }
            />
          ))}
        </Stack>
      </Card>
    </Stack>
  );
}

function LoadingHealth() {
  return (
    <>
      <SimpleGrid cols={{ base: 2, sm: 3, lg: 6 }} spacing="sm" role="status" aria-label="Loading">
        {['a', 'b', 'c', 'd', 'e', 'f'].map((tile) => (
          <Skeleton key={tile} h={78} radius="md" />
        ))}
      </SimpleGrid>
      <Stack gap="xs">
        <Title order={2}>Needs attention</Title>
        <LoadingRows rows={1} height={46} />
      </Stack>
    </>
  );
}
