import { Button, Stack } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { IconPlugConnected, IconPlus } from '@tabler/icons-react';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { NumberedPages } from '../../ui/NumberedPages.tsx';
import { Page } from '../../ui/Page.tsx';
import { integrationsQuery } from '../integrations/queries.ts';
import type { ConnectionsSearch } from '../search.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { ConnectDialog } from './ConnectDialog.tsx';
import { ConnectionFilters } from './ConnectionFilters.tsx';
import { ConnectionsTable } from './ConnectionsTable.tsx';
import { connectionsQuery } from './queries.ts';

const pageSize = 50;

export function ConnectionsPage() {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const search = useSearch({ from: '/$environment/connections' });
  const navigate = useNavigate({ from: '/$environment/connections' });
  const [isOpen, { open, close }] = useDisclosure();
  const { data: integrations = [] } = useQuery(integrationsQuery(environment));
  const page = search.page ?? 0;
  const connections = useQuery({
    ...connectionsQuery(environment, {
      ...(search.search !== undefined && { search: search.search }),
      ...(search.integration !== undefined && { integrationId: search.integration }),
      ...(search.status !== undefined && { status: search.status }),
      ...(search.sort !== undefined && { sort: search.sort }),
      count: 'true',
      limit: pageSize,
      page,
    }),
    placeholderData: keepPreviousData,
    refetchInterval: 5_000,
  });
  const change = (next: Partial<ConnectionsSearch>) =>
    void navigate({ search: (former) => ({ ...former, page: undefined, ...next }), replace: true });
  const isFiltered =
    search.search !== undefined || search.integration !== undefined || search.status !== undefined;
  return (
    <Page
      title="Connections"
      about="The accounts of your users, each with the credentials to call its provider."
      actions={
        mayWrite &&
        integrations.length > 0 && (
          <Button leftSection={<IconPlus size={16} />} onClick={open}>
            Add a test connection
          </Button>
        )
      }
    >
      <ConnectionFilters search={search} integrations={integrations} onChange={change} />
      <Loaded query={connections}>
        {({ connections: found, total = 0 }) =>
          found.length === 0 && page === 0 ? (
            <Empty
              environment={environment}
              isFiltered={isFiltered}
              hasIntegration={integrations.length > 0}
              onAdd={mayWrite ? open : undefined}
              onClear={() => void navigate({ search: {} })}
            />
          ) : (
            <Stack>
              <ConnectionsTable connections={found} environment={environment} />
              <NumberedPages
                page={page}
                size={pageSize}
                shown={found.length}
                total={total}
                onPage={(next) => change({ page: next || undefined })}
              />
            </Stack>
          )
        }
      </Loaded>
      <ConnectDialog environment={environment} isOpen={isOpen} onClose={close} />
    </Page>
  );
}

function Empty(given: {
  environment: string;
  isFiltered: boolean;
  hasIntegration: boolean;
  onAdd: (() => void) | undefined;
  onClear: () => void;
}) {
  const icon = <IconPlugConnected size={26} />;
  if (given.isFiltered) {
    return (
      <EmptyState
        icon={icon}
        title="Nothing fits"
        action={
          <Button variant="default" onClick={given.onClear}>
            Show all
          </Button>
        }
      >
        No connection matches these filters.
      </EmptyState>
    );
  }
  if (!given.hasIntegration) {
    return (
      <EmptyState
        icon={icon}
        title="An integration comes first"
        action={
          given.onAdd && (
            <Button
              renderRoot={(props) => (
                <Link
                  to="/$environment/integrations/new"
                  params={{ environment: given.environment }}
                  {...props}
                />
              )}
            >
              Add an integration
            </Button>
          )
        }
      >
        Connections are made through one. With test credentials it takes a click.
      </EmptyState>
    );
  }
  return (
    <EmptyState
      icon={icon}
      title="No connection yet"
      action={given.onAdd && <Button onClick={given.onAdd}>Add a test connection</Button>}
    >
      Connect an account yourself, or let your application make a link for its users with{' '}
      <code>POST /connect/sessions</code>.
    </EmptyState>
  );
}
