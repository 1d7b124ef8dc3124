import {
  Accordion,
  Alert,
  Anchor,
  Badge,
  Button,
  Card,
  Chip,
  Group,
  SimpleGrid,
  Stack,
  Switch,
  Text,
  TextInput,
} from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import MiniSearch from 'minisearch';
import { useState } from 'react';
import { FormDialog } from '../../ui/Dialog.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { FilterField } from '../../ui/FilterField.tsx';
import { IconChevronLeft, IconFlask, IconSearch, IconZoomQuestion } from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Logo } from '../../ui/Logo.tsx';
import { Page } from '../../ui/Page.tsx';
import { counted } from '../../ui/size.ts';
import { AnchorLink, GuideLink } from '../links.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { authLabels } from './auth-labels.ts';
import {
  ClientFields,
  type ClientValues,
  ConfigFields,
  clientErrors,
  configOf,
  credentialsOf,
  DisplayNameField,
  ScopesField,
  takesClient,
  useClientForm,
} from './ClientFields.tsx';
import { DefinitionDialog, NewDefinitionDialog } from './DefinitionDialog.tsx';
import {
  createIntegration,
  createTestIntegration,
  integrationsQuery,
  type Provider,
  providersQuery,
} from './queries.ts';
import { consoleOf, hasSetupGuide, SetupSteps } from './SetupGuide.tsx';

/** All providers, with a search and categories. */
export function CataloguePage() {
  const environment = useEnvironment();
  const { search, category, provider, define } = useSearch({ from: '/$environment/integrations/new' });
  const navigate = useNavigate({ from: '/$environment/integrations/new' });
  const query = useQuery(providersQuery(environment));
  const mayWrite = useMayWrite();
  const { data: integrations } = useQuery(integrationsQuery(environment));
  const chosen = mayWrite ? query.data?.find(({ name }) => name === provider) : undefined;
  return (
    <Page
      title="Add an integration"
      about={
        mayWrite
          ? 'Choose the provider whose accounts your users connect.'
          : 'The available providers. A developer of this environment can add an integration.'
      }
      actions={
        mayWrite && (
          <Button
            variant="default"
            onClick={() => void navigate({ search: (former) => ({ ...former, define: 'new' }) })}
          >
            Define a provider
          </Button>
        )
      }
      before={
        <AnchorLink size="sm" c="dimmed" to="/$environment/integrations" params={{ environment }}>
          <Group gap={4} mb={6}>
            <IconChevronLeft size={14} /> Integrations
          </Group>
        </AnchorLink>
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
          const found = matching(providers, { typed: search ?? '', category });
          const inCategory = matching(providers, { typed: '', category });
          const similar = found.length === 0 && search ? similarTo(inCategory, search) : [];
          const shown = found.length > 0 ? found : similar;
          return (
            <>
              <Categories
                providers={providers}
                chosen={category}
                onChoose={(one) =>
                  void navigate({ search: (former) => ({ ...former, category: one }), replace: true })
                }
              />
              <Dimmed role="status">
                {found.length < providers.length && `${found.length.toLocaleString()} of `}
                {counted(providers.length, 'provider')}
                {similar.length > 0 && '. Similar names:'}
              </Dimmed>
              {shown.length === 0 && (
                <EmptyState icon={<IconZoomQuestion size={26} />} title="No match">
                  You can define your own provider. <GuideLink to="catalogue" />
                </EmptyState>
              )}
              <SimpleGrid cols={{ base: 1, xs: 2, md: 3, xl: 4 }} spacing="sm">
                {shown.map((one) => (
                  <ProviderCard key={one.name} provider={one} mayAdd={mayWrite} />
                ))}
              </SimpleGrid>
            </>
          );
        }}
      </Loaded>
      {mayWrite && define === 'new' && (
        <NewDefinitionDialog
          onClose={(name) =>
            void navigate({
              search: (former) => ({ ...former, define: undefined, provider: name }),
              replace: true,
              ignoreBlocker: true,
            })
          }
        />
      )}
      {mayWrite && define !== undefined && define !== 'new' && (
        <DefinitionDialog
          key={define}
          name={define}
          onClose={() =>
            void navigate({
              search: (former) => ({ ...former, define: undefined }),
              replace: true,
              ignoreBlocker: true,
            })
          }
        />
      )}
      {chosen && integrations && (
        <CreateDialog
          key={chosen.name}
          provider={chosen}
          taken={integrations.map(({ integration_id: key }) => key)}
          onClose={() =>
            void navigate({ search: (former) => ({ ...former, provider: undefined }), replace: true })
          }
        />
      )}
    </Page>
  );
}

function ProviderCard({ provider, mayAdd }: { provider: Provider; mayAdd: boolean }) {
  const environment = useEnvironment();
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
              {[
                authLabels[provider.auth_mode] ?? provider.auth_mode,
                ...(provider.categories ?? []).slice(0, 1).map(spellCategory),
              ].join(' · ')}
            </Text>
            {provider.has_sandbox === true && (
              <Badge color="violet" size="sm" flex="none">
                sandbox
              </Badge>
            )}
            {provider.origin === 'environment' && (
              <Badge color="blue" size="sm" flex="none">
                yours
              </Badge>
            )}
            {provider.level === 'community' && provider.origin === undefined && (
              <Badge color="gray" size="sm" flex="none">
                community
              </Badge>
            )}
          </Group>
        </Stack>
      </Group>
    </Card>
  );
}

/** Categories with fewer providers have a chip only if all categories are shown. */
const minProviders = 9;

const abbreviations = new Set(['ai', 'crm', 'hr', 'it']);
const spellCategory = (category: string) => (abbreviations.has(category) ? category.toUpperCase() : category);

/** The categories as chips, those with the most providers first. At most one category is chosen. */
function Categories({
  providers,
  chosen,
  onChoose,
}: {
  providers: readonly Provider[];
  chosen: string | undefined;
  onChoose: (category: string | undefined) => void;
}) {
  const counts = new Map<string, number>();
  for (const one of providers.flatMap(({ categories = [] }) => categories))
    counts.set(one, (counts.get(one) ?? 0) + 1);
  const [isWhole, setWhole] = useState(false);
  const shown = [...counts]
    .filter(([one, count]) => isWhole || count >= minProviders || one === chosen)
    .toSorted(([, a], [, b]) => b - a);
  const left = counts.size - shown.length;
  return (
    <Group gap={6} role="group" aria-label="Categories">
      {shown.map(([one, count]) => (
        <Chip
          key={one}
          size="xs"
          checked={one === chosen}
          onChange={(isChosen) => onChoose(isChosen ? one : undefined)}
        >
          {spellCategory(one)}{' '}
          <Text span inherit {...(one !== chosen && { c: 'dimmed' })}>
            {count}
          </Text>
        </Chip>
      ))}
      {left > 0 && (
        <Button variant="subtle" size="compact-xs" onClick={() => setWhole(true)}>
          {counted(left, 'more category', 'more categories')}
        </Button>
      )}
    </Group>
  );
}

/** The best matches of the text first, then providers with test credentials. */
function matching(
  providers: readonly Provider[],
  { typed, category }: { typed: string; category: string | undefined },
): Provider[] {
  const wanted = plain(typed);
  const words = wanted.split(' ');
  const found = providers.flatMap((provider) => {
    const { name, display_name, auth_mode, categories = [] } = provider;
    if (category !== undefined && !categories.includes(category)) return [];
    const names = [plain(display_name), plain(name)];
    const text = [...names, ...categories, plain(authLabels[auth_mode] ?? auth_mode)].join(' ');
    return words.every((word) => text.includes(word))
      ? [{ provider, rank: rankOf(wanted, names, text) }]
      : [];
  });
  return found
    .toSorted(
      (a, b) =>
        a.rank - b.rank ||
        Number(b.provider.has_sandbox === true) - Number(a.provider.has_sandbox === true) ||
        a.provider.display_name.localeCompare(b.provider.display_name, 'en'),
    )
    .map(({ provider }) => provider);
}

const maxSimilar = 8;

/** Providers with a name that differs from the text by a few letters. */
function similarTo(providers: readonly Provider[], typed: string): Provider[] {
  const index = new MiniSearch<Provider>({ idField: 'name', fields: ['display_name', 'name'] });
  index.addAll(providers);
  const byName = new Map(providers.map((provider) => [provider.name, provider]));
  return index
    .search(typed, { fuzzy: (term) => term.length > 3 && 0.34, prefix: true, combineWith: 'AND' })
    .slice(0, maxSimilar)
    .flatMap(({ id }) => byName.get(id) ?? []);
}

const plain = (text: string) =>
  text
    .toLowerCase()
    .split(/[\s-]+/)
    .filter(Boolean)
    .join(' ');

/** The whole name, the start of a name, the start of a word, any other match. */
function rankOf(wanted: string, names: readonly string[], text: string): number {
  if (names.includes(wanted)) return 0;
  if (names.some((name) => name.startsWith(wanted))) return 1;
  return ` ${text}`.includes(` ${wanted}`) ? 2 : 3;
}

const levelTexts: Record<string, string> = {
  verified: 'Tested with a real account',
  documented: 'Checked against the documentation of the provider',
  community: 'Not checked against the documentation of the provider',
};

/** How the facts of a definition were checked. */
function FactsNote({ provider: { level, source } }: { provider: Provider }) {
  if (level === undefined) return null;
  return (
    <Text size="sm" c="dimmed">
      {levelTexts[level] ?? level}
      {source && (
        <>
          {' '}
          (
          <Anchor inherit underline="always" href={source.page} target="_blank" rel="noreferrer">
            {source.on}
          </Anchor>
          )
        </>
      )}
    </Text>
  );
}

/** Creates an integration: with test credentials, or with the user's own credentials. */
function CreateDialog({
  provider,
  taken,
  onClose,
}: {
  provider: Provider;
  /** The IDs of the integrations. */
  taken: readonly string[];
  onClose: () => void;
}) {
  const environment = useEnvironment();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const form = useClientForm(provider, { taken });
  const canTest = provider.has_sandbox === true;
  const isTest = canTest && form.values.isTest;
  const create = useMutation({
    mutationFn: (values: ClientValues) => {
      const body = {
        provider: provider.name,
        integration_id: values.key.trim(),
        ...(values.name.trim() !== '' && { display_name: values.name.trim() }),
        integration_config: configOf(values),
      };
      if (isTest) return createTestIntegration(environment, body);
      const hasClient = takesClient(provider) && values.client_id.trim() !== '';
      return createIntegration(environment, {
        ...body,
        ...(hasClient && { credentials: credentialsOf(values, provider) }),
      });
    },
    onError: (error) => form.setErrors(clientErrors(error)),
    onMutate: () => location.pathname,
    onSuccess: async ({ integration_id }, _given, from) => {
      await queries.invalidateQueries({ queryKey: [environment, 'integrations'] });
      if (location.pathname !== from) return;
      await navigate({
        to: '/$environment/integrations/of/$key',
        params: { environment, key: integration_id },
        ignoreBlocker: true,
      });
    },
  });
  return (
    <FormDialog
      title={`Add ${provider.display_name}`}
      size={isTest ? 'md' : 'lg'}
      act="Add"
      attempt={{ ...create, isError: create.isError && Object.keys(clientErrors(create.error)).length === 0 }}
      isDirty={form.isDirty()}
      onClose={onClose}
      onSubmit={form.onSubmit((values) => create.mutate(values))}
    >
      {provider.origin === 'environment' ? (
        <AnchorLink
          size="sm"
          to="/$environment/integrations/new"
          params={{ environment }}
          search={{ define: provider.name }}
        >
          Edit the definition
        </AnchorLink>
      ) : (
        <FactsNote provider={provider} />
      )}
      {provider.docs && (
        <Anchor size="sm" href={provider.docs} target="_blank" rel="noreferrer">
          Documentation of {provider.display_name}
        </Anchor>
      )}
      <TextInput
        label="Integration ID"
        description="The value of the Integration-Id header in your calls"
        required
        {...form.getInputProps('key')}
      />
      <DisplayNameField form={form} provider={provider} />
      {canTest && (
        <Switch
          label="Test credentials"
          description="Uses the built-in sandbox: no set-up at the provider, and no real account"
          {...form.getInputProps('isTest', { type: 'checkbox' })}
        />
      )}
      {isTest ? (
        <Alert icon={<IconFlask size={18} />} color="violet">
          This works immediately. You can enter your own credentials later.
        </Alert>
      ) : (
        <>
          <ConfigFields form={form} provider={provider} />
          {takesClient(provider) && (
            <>
              {hasSetupGuide(provider) && (
                <Accordion variant="contained" chevronPosition="left">
                  <Accordion.Item value="guide">
                    <Accordion.Control>
                      {provider.auth_mode === 'OAUTH1'
                        ? 'How to register an application'
                        : 'How to create an OAuth client'}{' '}
                      at {consoleOf(provider)}
                    </Accordion.Control>
                    <Accordion.Panel>
                      <SetupSteps provider={provider} />
                    </Accordion.Panel>
                  </Accordion.Item>
                </Accordion>
              )}
              <ClientFields form={form} provider={provider} hasSecret={false} />
              <ScopesField form={form} provider={provider} />
            </>
          )}
          {!takesClient(provider) && (
            <Alert variant="light">
              {provider.display_name} does not need an OAuth client: each user enters their own credentials.
            </Alert>
          )}
        </>
      )}
    </FormDialog>
  );
}
