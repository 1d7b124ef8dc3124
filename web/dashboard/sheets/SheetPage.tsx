import { Button, Stack } from '@mantine/core';
import { IconTrash } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link, useParams } from '@tanstack/react-router';
import { BackLink } from '../../ui/BackLink.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { Page } from '../../ui/Page.tsx';
import { type At, connectionQuery } from '../connections/queries.ts';
import { syncsQuery } from '../functions/queries.ts';
import { useEnvironment } from '../shell/environment.ts';
import { SheetRecords } from './SheetRecords.tsx';
import { StateCard } from './StateCard.tsx';
import { type ChosenSheet, chosenOf, nameOf, rowsSync } from './settings.ts';

/** While it runs, one looks more often. */
const runningMs = 1_000;
const idleMs = 5_000;

/** A sheet that is followed: what it is at, what its last run did, and its rows as records. */
export function SheetPage() {
  const environment = useEnvironment();
  const { variant, integration, id } = useParams({
    from: '/$environment/connections/$integration/$id/sheets/of/$variant',
  });
  const at: At = { integration, id };
  const connection = useQuery(connectionQuery(environment, at));
  const sheet = connection.data && chosenOf(connection.data.metadata).find((one) => one.variant === variant);
  return (
    <Page
      title={sheet === undefined ? variant : nameOf(sheet)}
      before={
        <BackLink
          link={(props) => (
            <Link
              to="/$environment/connections/$integration/$id"
              params={{ environment, ...at }}
              {...props}
            />
          )}
        >
          {connection.data?.account?.email ?? at.id}
        </BackLink>
      }
    >
      <Loaded query={connection}>
        {() =>
          sheet === undefined ? (
            <EmptyState
              icon={<IconTrash size={26} />}
              title="No such sheet"
              action={
                <Button
                  renderRoot={(props) => (
                    <Link
                      to="/$environment/connections/$integration/$id/sheets/new"
                      params={{ environment, ...at }}
                      search={{}}
                      {...props}
                    />
                  )}
                >
                  Add a sheet
                </Button>
              }
            >
              Nothing is chosen under the name {variant}: it was removed, or never there.
            </EmptyState>
          ) : (
            <Sheet environment={environment} at={at} sheet={sheet} />
          )
        }
      </Loaded>
    </Page>
  );
}

function Sheet({ environment, at, sheet }: { environment: string; at: At; sheet: ChosenSheet }) {
  const { variant } = sheet;
  const query = useQuery({
    ...syncsQuery(environment, {
      ...{ provider_config_key: at.integration, connection_id: at.id },
      ...{ function: rowsSync, limit: 200 },
    }),
    refetchInterval: ({ state: { data } }) =>
      data?.syncs.find((one) => one.variant === variant)?.current_run ? runningMs : idleMs,
  });
  return (
    <Loaded query={query} loading={<LoadingRows rows={2} height={160} />}>
      {({ syncs }) => {
        const sync = syncs.find((one) => one.variant === variant);
        return (
          <Stack gap="lg">
            <StateCard environment={environment} at={at} sheet={sheet} sync={sync} />
            <SheetRecords
              environment={environment}
              at={{ ...at, variant }}
              isRunning={sync?.current_run != null}
            />
          </Stack>
        );
      }}
    </Loaded>
  );
}
