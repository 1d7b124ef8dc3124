import { Anchor, Badge, Card, Group, SimpleGrid, Stack, Text } from '@mantine/core';
import { IconChevronLeft, IconSearch, IconZoomQuestion } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { FilterField } from '../../ui/FilterField.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Logo } from '../../ui/Logo.tsx';
import { Page } from '../../ui/Page.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { CreateDialog } from './CreateDialog.tsx';
import { type Provider, providersQuery } from './queries.ts';

/** Every provider, to search and to choose from. */
export function CataloguePage() {
  const environment = useEnvironment();
  const { search, provider } = useSearch({ from: '/$environment/integrations/new' });
  const navigate = useNavigate({ from: '/$environment/integrations/new' });
  const query = useQuery(providersQuery(environment));
  const mayWrite = useMayWrite();
  const chosen = mayWrite ? query.data?.find(({ name }) => name === provider) : undefined;
  return (
    <Page
      title="Add an integration"
      about={
        mayWrite
          ? 'Choose the provider whose accounts your users will connect.'
          : 'What there is to choose from. A developer of this environment can add one.'
      }
      before={
        <Anchor
          size="sm"
          c="dimmed"
          renderRoot={(props) => <Link to="/$environment/integrations" params={{ environment }} {...props} />}
        >
          <Group gap={4} mb={6}>
            <IconChevronLeft size={14} /> Integrations
          </Group>
        </Anchor>
      }
    >
      <FilterField
        maw={480}
        size="md"
        aria-label="Search providers"
        placeholder="Google Sheets, CRM, storage"
        leftSection={<IconSearch size={18} />}
        data-autofocus
        value={search}
        onSettle={(typed) =>
          void navigate({ search: (former) => ({ ...former, search: typed }), replace: true })
        }
      />
      <Loaded query={query}>
        {(providers) => {
          const found = matching(providers, search ?? '');
          return found.length === 0 ? (
            <EmptyState icon={<IconZoomQuestion size={26} />} title="No such provider">
              Nothing in the catalogue is called so. A provider is one file of data, which you can add
              yourself.
            </EmptyState>
          ) : (
            <SimpleGrid cols={{ base: 1, xs: 2, md: 3, xl: 4 }} spacing="sm">
              {found.map((one) => (
                <ProviderCard key={one.name} provider={one} environment={environment} mayAdd={mayWrite} />
              ))}
            </SimpleGrid>
          );
        }}
      </Loaded>
      {chosen && (
        <CreateDialog
          key={chosen.name}
          environment={environment}
          provider={chosen}
          onClose={() => void navigate({ search: (former) => ({ ...former, provider: undefined }) })}
        />
      )}
    </Page>
  );
}

function ProviderCard({
  provider,
  environment,
  mayAdd,
}: {
  provider: Provider;
  environment: string;
  mayAdd: boolean;
}) {
  const name = (
    <Text span fw={550}>
      {provider.display_name}
    </Text>
  );
  return (
    <Card padding="sm" className={mayAdd ? 'fill-row' : ''}>
      <Group wrap="nowrap" gap="sm">
        <Logo src={provider.logo_url} name={provider.display_name} />
        <Stack gap={0} miw={0} flex={1}>
          {mayAdd ? (
            <Link
              className="fill-link"
              to="/$environment/integrations/new"
              params={{ environment }}
              search={(former) => ({ ...former, provider: provider.name })}
              resetScroll={false}
            >
              {name}
            </Link>
          ) : (
            name
          )}
          <Group gap={6} wrap="nowrap">
            <Text size="xs" c="dimmed" truncate>
              {(provider.categories ?? []).join(', ') || provider.auth_mode}
            </Text>
            {provider.has_sandbox === true && (
              <Badge color="violet" size="sm" flex="none">
                testable
              </Badge>
            )}
          </Group>
        </Stack>
      </Group>
    </Card>
  );
}

/** Those that can be tried at once stand first. */
function matching(providers: Provider[], typed: string): Provider[] {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const found = providers.filter(({ name, display_name, categories = [] }) => {
    const text = [name, display_name, ...categories].join(' ').toLowerCase();
    return words.every((word) => text.includes(word));
  });
  return found.toSorted((a, b) => Number(b.has_sandbox === true) - Number(a.has_sandbox === true));
}
