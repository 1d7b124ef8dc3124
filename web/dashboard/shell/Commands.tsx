import { useMantineColorScheme } from '@mantine/core';
import { useDebouncedValue, useHotkeys } from '@mantine/hooks';
import {
  Spotlight,
  type SpotlightActionData,
  type SpotlightActionGroupData,
  spotlight,
} from '@mantine/spotlight';
import { keepPreviousData, useQueries, useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import {
  IconDatabase,
  IconFunction,
  IconHourglassLow,
  IconKeyboard,
  IconMoon,
  IconPlugConnected,
  IconPlus,
  IconSearch,
  IconSettings,
  IconSun,
} from '../../ui/icons.tsx';
import { Logo } from '../../ui/Logo.tsx';
import { counted } from '../../ui/size.ts';
import { accountName } from '../connections/EndUser.tsx';
import { connectionsQuery, datasetsQuery } from '../connections/queries.ts';
import { functionsQuery } from '../functions/queries.ts';
import { types } from '../functions/words.ts';
import { integrationsQuery } from '../integrations/queries.ts';
import { connectionPage, datasetPage } from '../links.tsx';
import { useSettingsTabs } from '../settings/tabs.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { useEnvironment } from './environment.ts';
import { pages } from './pages.ts';
import { useSingleKeys } from './shortcuts.ts';

/** The list is rendered at each key press, so it is short. */
const maxIntegrations = 8;

function fitting<T extends { integration_id: string; display_name: string }>(all: T[], typed: string): T[] {
  const words = typed.trim().toLowerCase();
  const found: T[] = [];
  for (const one of all) {
    if (`${one.display_name}\n${one.integration_id}`.toLowerCase().includes(words)) found.push(one);
    if (found.length === maxIntegrations) break;
  }
  return found;
}

/** Further words by which the search finds a page. */
const keywords: Partial<Record<(typeof pages)[number]['to'], string>> = {
  '/$environment/records': 'datasets cache prune',
  '/$environment/playground': 'proxy request',
  '/$environment/events': 'webhooks endpoints deliveries signing secret',
};

/** The command palette: pages, settings, integrations, matching connections with their datasets, functions, and actions. */
export function Commands({
  calls,
  onShortcuts,
}: {
  /** How often it was called: each time, it opens. */
  calls: number;
  onShortcuts: () => void;
}) {
  const environment = useEnvironment();
  const navigate = useNavigate();
  const { setColorScheme } = useMantineColorScheme();
  const mayWrite = useMayWrite();
  const [hasSingleKeys] = useSingleKeys();
  const [isOpen, setOpen] = useState(false);
  const [typed, setTyped] = useState('');
  const [settled] = useDebouncedValue(typed.trim(), 150);
  const settingsTabs = useSettingsTabs();
  // biome-ignore lint/correctness/useExhaustiveDependencies: a call opens it
  useEffect(spotlight.open, [calls]);
  // Also while a field has the focus.
  useHotkeys([['mod + K', spotlight.toggle]], []);
  // Results that arrive later have no selected entry; Enter opens the first one.
  useEffect(() => {
    if (isOpen && document.querySelector('[data-action][data-selected]') === null)
      document.querySelector('[data-action]')?.setAttribute('data-selected', 'true');
  });
  const isSearching = isOpen && settled.length > 1;
  const integrations = useQuery({ ...integrationsQuery(environment), staleTime: 60_000, enabled: isOpen });
  const connections = useQuery({
    ...connectionsQuery(environment, { search: settled, limit: 5 }),
    enabled: isSearching,
    placeholderData: keepPreviousData,
  });
  const functions = useQuery({
    ...functionsQuery(environment, { search: settled, limit: 5 }),
    enabled: isSearching,
    refetchInterval: false,
  });
  const foundFunctions = isSearching ? (functions.data?.data ?? []) : [];
  const found = isSearching ? (connections.data?.connections ?? []) : [];
  const datasets = useQueries({
    queries: found.map(({ integration_id: integration, connection_id: id }) => ({
      ...datasetsQuery(environment, { integration, id }),
      staleTime: 0,
    })),
  });
  const groups: SpotlightActionGroupData[] = [
    {
      group: 'Pages',
      actions: [
        ...pages.map(
          ({ to, label, icon: Icon }): SpotlightActionData => ({
            id: to,
            label,
            keywords: keywords[to] ?? '',
            leftSection: <Icon size={18} />,
            onClick: () => void navigate({ to, params: { environment } }),
          }),
        ),
        {
          id: 'retention',
          label: 'Retention',
          keywords: 'prune records by age, remove deleted records',
          leftSection: <IconHourglassLow size={18} />,
          onClick: () => void navigate({ to: '/$environment/records/retention', params: { environment } }),
        },
      ],
    },
    {
      group: 'Settings',
      actions: settingsTabs.map(({ tab, label, keywords: words = '' }) => ({
        id: `settings:${tab}`,
        label,
        keywords: `settings ${words}`,
        leftSection: <IconSettings size={18} />,
        onClick: () =>
          void navigate({ to: '/$environment/settings', params: { environment }, search: { tab } }),
      })),
    },
    {
      group: 'Integrations',
      actions: fitting(integrations.data ?? [], typed).map(({ integration_id, display_name, logo }) => ({
        id: `integration:${integration_id}`,
        label: display_name,
        description: integration_id,
        leftSection: <Logo src={logo} name={display_name} size={22} />,
        onClick: () =>
          void navigate({
            to: '/$environment/integrations/of/$key',
            params: { environment, key: integration_id },
          }),
      })),
    },
    {
      group: 'Connections',
      actions: found.map((connection) => ({
        id: `connection:${connection.id}`,
        label: accountName(connection),
        description: `${connection.integration_id} · ${connection.connection_id}`,
        // The service has already filtered; its results are shown even if their label does not contain the
        // words.
        keywords: [typed],
        leftSection: <IconPlugConnected size={18} />,
        onClick: () =>
          void navigate(
            connectionPage(environment, {
              integration: connection.integration_id,
              id: connection.connection_id,
            }),
          ),
      })),
    },
    {
      group: 'Functions',
      actions: foundFunctions.map(({ name, type, integration_id: integration }) => ({
        id: `function:${integration}:${type}:${name}`,
        label: name,
        description: `${types[type].label} of ${integration}`,
        keywords: [typed],
        leftSection: <IconFunction size={18} />,
        onClick: () =>
          void navigate({
            to: '/$environment/functions/of/$integration/$type/$name',
            params: { environment, integration, type, name },
          }),
      })),
    },
    {
      group: 'Datasets',
      actions: found.flatMap((connection, index) =>
        (datasets[index]?.data ?? []).map(({ model, variant, records }) => ({
          id: `dataset:${connection.id}:${model}:${variant}`,
          label: variant === 'base' ? model : `${model} · ${variant}`,
          description: `${counted(records, 'record')} of ${accountName(connection)}`,
          keywords: [typed],
          leftSection: <IconDatabase size={18} />,
          onClick: () =>
            void navigate(
              datasetPage(environment, {
                integration: connection.integration_id,
                id: connection.connection_id,
                model,
                variant,
              }),
            ),
        })),
      ),
    },
    {
      group: 'Actions',
      actions: [
        ...(mayWrite
          ? [
              {
                id: 'new-integration',
                label: 'Add an integration',
                leftSection: <IconPlus size={18} />,
                onClick: () =>
                  void navigate({ to: '/$environment/integrations/new', params: { environment } }),
              },
            ]
          : []),
        {
          id: 'shortcuts',
          label: 'Keyboard shortcuts',
          leftSection: <IconKeyboard size={18} />,
          onClick: onShortcuts,
        },
        {
          id: 'light',
          label: 'Light colors',
          leftSection: <IconSun size={18} />,
          onClick: () => setColorScheme('light'),
        },
        {
          id: 'dark',
          label: 'Dark colors',
          leftSection: <IconMoon size={18} />,
          onClick: () => setColorScheme('dark'),
        },
      ],
    },
  ];
  return (
    <Spotlight
      actions={groups.filter(({ actions }) => actions.length > 0)}
      query={typed}
      onSpotlightOpen={() => setOpen(true)}
      onSpotlightClose={() => setOpen(false)}
      onQueryChange={setTyped}
      shortcut={hasSingleKeys ? ['/', 'shift + /'] : null}
      nothingFound="Nothing found"
      highlightQuery
      attributes={{ content: { 'aria-label': 'Search' } }}
      scrollable
      maxHeight={420}
      searchProps={{
        leftSection: <IconSearch size={18} />,
        placeholder: 'Pages, connections, functions…',
        'aria-label': 'Search',
      }}
    />
  );
}
