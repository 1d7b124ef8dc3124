import { useMantineColorScheme } from '@mantine/core';
import { Spotlight, type SpotlightActionData, type SpotlightActionGroupData } from '@mantine/spotlight';
import { IconMoon, IconPlugConnected, IconPlus, IconSearch, IconSun } from '@tabler/icons-react';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { Logo } from '../../ui/Logo.tsx';
import { connectionsQuery } from '../connections/queries.ts';
import { integrationsQuery } from '../integrations/queries.ts';
import { useEnvironment } from './environment.ts';
import { pages } from './pages.ts';

/** The command palette: pages, integrations, connections that match what is typed, and a few acts. */
export function Commands() {
  const environment = useEnvironment();
  const navigate = useNavigate();
  const { setColorScheme } = useMantineColorScheme();
  const [typed, setTyped] = useState('');
  const integrations = useQuery({ ...integrationsQuery(environment), staleTime: 60_000 });
  const connections = useQuery({
    ...connectionsQuery(environment, { search: typed, limit: 5 }),
    enabled: typed.length > 1,
    placeholderData: keepPreviousData,
  });
  const found = typed.length > 1 ? (connections.data?.connections ?? []) : [];
  const groups: SpotlightActionGroupData[] = [
    {
      group: 'Pages',
      actions: pages.map(
        ({ to, label, icon: Icon }): SpotlightActionData => ({
          id: to,
          label,
          leftSection: <Icon size={18} />,
          onClick: () => void navigate({ to, params: { environment } }),
        }),
      ),
    },
    {
      group: 'Integrations',
      actions: (integrations.data ?? []).map(({ unique_key, display_name, logo }) => ({
        id: `integration:${unique_key}`,
        label: display_name,
        description: unique_key,
        leftSection: <Logo src={logo} name={display_name} size={22} />,
        onClick: () =>
          void navigate({
            to: '/$environment/integrations/of/$key',
            params: { environment, key: unique_key },
          }),
      })),
    },
    {
      group: 'Connections',
      actions: found.map(({ connection_id, provider_config_key, account }) => ({
        id: `connection:${provider_config_key}:${connection_id}`,
        label: account?.email ?? connection_id,
        description: `${provider_config_key} · ${connection_id}`,
        // The service has searched; what it found is shown though the label does not hold the words.
        keywords: [typed],
        leftSection: <IconPlugConnected size={18} />,
        onClick: () =>
          void navigate({
            to: '/$environment/connections/$integration/$id',
            params: { environment, integration: provider_config_key, id: connection_id },
          }),
      })),
    },
    {
      group: 'Acts',
      actions: [
        {
          id: 'new-integration',
          label: 'Add an integration',
          leftSection: <IconPlus size={18} />,
          onClick: () => void navigate({ to: '/$environment/integrations/new', params: { environment } }),
        },
        {
          id: 'light',
          label: 'Light colours',
          leftSection: <IconSun size={18} />,
          onClick: () => setColorScheme('light'),
        },
        {
          id: 'dark',
          label: 'Dark colours',
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
      onQueryChange={setTyped}
      shortcut={['mod + K', '/']}
      nothingFound="Nothing found"
      highlightQuery
      scrollable
      maxHeight={420}
      searchProps={{
        leftSection: <IconSearch size={18} />,
        placeholder: 'Pages, integrations, connections',
        'aria-label': 'Search',
      }}
    />
  );
}
