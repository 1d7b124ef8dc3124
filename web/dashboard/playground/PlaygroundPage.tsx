import { Button, Skeleton, Stack } from '@mantine/core';
import { IconEyeOff, IconPlugConnected } from '@tabler/icons-react';
import { useQuery, useSuspenseQuery } from '@tanstack/react-query';
import { Link, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Page } from '../../ui/Page.tsx';
import { connectionQuery, connectionsQuery } from '../connections/queries.ts';
import { useEnvironment } from '../shell/environment.ts';
import { meQuery } from '../sign-in/queries.ts';
import { type Chosen, Playground } from './Playground.tsx';

/** A call to a provider, built by hand and sent through the proxy as the signed-in user. */
export function PlaygroundPage() {
  const environment = useEnvironment();
  const { data: me } = useSuspenseQuery(meQuery());
  const scopes = me.environments.find(({ name }) => name === environment)?.scopes ?? [];
  return (
    <Page
      title="Playground"
      about="Call a provider through the proxy with the credentials of a connection, and see what comes back."
    >
      {scopes.includes('proxy:read') ? (
        <WithConnection
          key={environment}
          environment={environment}
          mayWrite={scopes.includes('proxy:write')}
        />
      ) : (
        <EmptyState icon={<IconEyeOff size={26} />} title="Viewers cannot call providers">
          A call uses the credentials of somebody's account. Your role in {environment} may look at
          connections and activity, not call. An owner can make you a developer.
        </EmptyState>
      )}
    </Page>
  );
}

/** Starts with the connection that the address names, or the newest one that works. */
function WithConnection({ environment, mayWrite }: { environment: string; mayWrite: boolean }) {
  const search = useSearch({ from: '/$environment/playground' });
  // The address follows what is chosen; only the one that the page was opened with chooses.
  const [{ integration, connection: id }] = useState(search);
  const isNamed = integration !== undefined && id !== undefined;
  const named = useQuery({
    ...connectionQuery(environment, { integration: integration ?? '', id: id ?? '' }),
    enabled: isNamed,
  });
  const newest = useQuery({ ...connectionsQuery(environment, { limit: 20 }), enabled: !isNamed });
  const waiting = (
    <Stack role="status" aria-label="Loading">
      <Skeleton h={62} />
      <Skeleton h={320} />
    </Stack>
  );
  const open = (start: Chosen) => <Playground environment={environment} mayWrite={mayWrite} start={start} />;
  if (isNamed) {
    return (
      <Loaded query={named} loading={waiting}>
        {open}
      </Loaded>
    );
  }
  return (
    <Loaded query={newest} loading={waiting}>
      {({ connections }) =>
        connections[0] !== undefined ? (
          open(connections.find(({ health }) => health.status === 'active') ?? connections[0])
        ) : (
          <EmptyState
            icon={<IconPlugConnected size={26} />}
            title="A connection comes first"
            action={
              <Button
                renderRoot={(props) => (
                  <Link to="/$environment/connections" params={{ environment }} search={{}} {...props} />
                )}
              >
                To the connections
              </Button>
            }
          >
            Calls are made with the credentials of an account. With a test connection you need no account
            anywhere.
          </EmptyState>
        )
      }
    </Loaded>
  );
}
