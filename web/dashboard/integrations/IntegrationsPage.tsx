import { Badge, Card, Group, SimpleGrid, Skeleton, Stack, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { FilterField } from '../../ui/FilterField.tsx';
import { IconCalendarExclamation, IconPlus, IconPuzzle, IconSearch } from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Logo } from '../../ui/Logo.tsx';
import { Page } from '../../ui/Page.tsx';
import { Sliced } from '../../ui/Sliced.tsx';
import { upTo } from '../../ui/size.ts';
import { useNow } from '../../ui/time.ts';
import { causeName } from '../connections/causes.ts';
import { ButtonLink, GuideLink, integrationPage } from '../links.tsx';
import { OnlySome } from '../lists.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { type Integration, type Usage, usedIntegrationsQuery } from './queries.ts';
import { concerning } from './SunsetNotice.tsx';

const fewEnough = 12;

export function IntegrationsPage() {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const query = useQuery(usedIntegrationsQuery(environment));
  const add = (
    <ButtonLink
      leftSection={<IconPlus size={16} />}
      to="/$environment/integrations/new"
      params={{ environment }}
      search={{}}
    >
      Add an integration
    </ButtonLink>
  );
  return (
    <Page
      title="Integrations"
      about={
        <>
          Provider apps that your users connect through. <GuideLink to="integrations" />
        </>
      }
      actions={mayWrite && (query.data?.length ?? 0) > 0 && add}
    >
      <Loaded query={query} loading={<LoadingCards />}>
        {(integrations) =>
          integrations.length === 0 ? (
            <EmptyState icon={<IconPuzzle size={26} />} title="No integration yet" action={mayWrite && add}>
              Choose a provider from the catalogue. With test credentials it works immediately, without an
              account at the provider. <GuideLink to="catalogue" />
            </EmptyState>
          ) : (
            <Found integrations={integrations} />
          )
        }
      </Loaded>
    </Page>
  );
}

/** The integrations that match the search. A short list has no search field. */
function Found({ integrations }: { integrations: Integration[] }) {
  const { search, faulty } = useSearch({ from: '/$environment/integrations' });
  const navigate = useNavigate({ from: '/$environment/integrations' });
  const words = (search ?? '').toLowerCase();
  const found = integrations.filter(
    ({ integration_id, display_name, provider, fault }) =>
      [integration_id, display_name, provider].some((text) => text.toLowerCase().includes(words)) &&
      (faulty === undefined || fault !== null),
  );
  return (
    <Stack>
      {(integrations.length > fewEnough || search !== undefined) && (
        <FilterField
          maw={420}
          aria-label="Search integrations"
          placeholder="Name, ID or provider"
          leftSection={<IconSearch size={16} />}
          value={search}
          onSettle={(typed) =>
            void navigate({ search: (former) => ({ ...former, search: typed }), replace: true })
          }
        />
      )}
      {faulty && (
        <OnlySome
          what="integrations with an error"
          onAll={() => void navigate({ search: { search }, replace: true })}
        />
      )}
      {found.length === 0 && (
        <EmptyState icon={<IconPuzzle size={26} />} title="No match">
          No integration matches.
        </EmptyState>
      )}
      <Sliced key={search} items={found} size={60}>
        {(shown) => (
          <SimpleGrid cols={{ base: 1, sm: 2, lg: 3 }}>
            {shown.map((integration) => (
              <IntegrationCard key={integration.integration_id} integration={integration} />
            ))}
          </SimpleGrid>
        )}
      </Sliced>
    </Stack>
  );
}

/** The number of connections, and of those whose state is Reconnect needed. */
function Connected({ usage }: { usage: Usage }) {
  const { total, needs_reauth, blocked } = usage.connections;
  const dead = needs_reauth + blocked;
  return (
    <Dimmed>
      {total === 1 ? '1 connection' : `${upTo(total)} connections`}
      {dead > 0 && (
        <Text span inherit c="var(--mantine-color-red-light-color)" fw={550}>
          {' '}
          · {upTo(dead)} reconnect needed
        </Text>
      )}
    </Dimmed>
  );
}

function IntegrationCard({ integration }: { integration: Integration }) {
  const environment = useEnvironment();
  const nowMs = useNow();
  return (
    <Card className="fill-row">
      <Group wrap="nowrap" align="flex-start">
        <Logo src={integration.logo} name={integration.display_name} size={40} />
        <Stack gap={2} miw={0} flex={1}>
          <Link className="fill-link" {...integrationPage(environment, integration.integration_id)}>
            <Text span fw={600}>
              {integration.display_name}
            </Text>
          </Link>
          <Dimmed ff="monospace" truncate>
            {integration.integration_id}
          </Dimmed>
          {integration.usage && <Connected usage={integration.usage} />}
          <Group gap={6} mt={6}>
            {integration.test && <Badge color="violet">test credentials</Badge>}
            {integration.fault === null ? (
              <Badge color="green" variant="dot">
                Configured
              </Badge>
            ) : (
              <Badge color="red" variant="dot">
                {causeName(integration.fault.cause)}
              </Badge>
            )}
          </Group>
          {integration.usage?.sunsets.map((sunset) => (
            <Group key={`${sunset.on} ${sunset.ends}`} gap={6} mt={6} wrap="nowrap" align="flex-start">
              <IconCalendarExclamation size={16} color="var(--mantine-color-orange-filled)" />
              <Text size="sm" flex={1}>
                {concerning(sunset, nowMs)}
              </Text>
            </Group>
          ))}
          {integration.fault !== null && (
            <Text size="sm" mt={6} lineClamp={3}>
              {integration.fault.next_step}
            </Text>
          )}
        </Stack>
      </Group>
    </Card>
  );
}

function LoadingCards() {
  return (
    <SimpleGrid cols={{ base: 1, sm: 2, lg: 3 }} role="status" aria-label="Loading">
      {['a', 'b', 'c'].map((card) => (
        <Skeleton key={card} h={132} radius="md" />
      ))}
    </SimpleGrid>
  );
}
