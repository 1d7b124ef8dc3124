import { Button, Group, SimpleGrid, Stack, Text } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { IconPlus, IconSend } from '@tabler/icons-react';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { Confirm } from '../../ui/Confirm.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { EndpointCard } from './EndpointCard.tsx';
import { EndpointDialog } from './EndpointDialog.tsx';
import { changeEndpoint, deleteEndpoint, type Endpoint, endpointsQuery, sendLatest } from './queries.ts';
import { ReplayDialog } from './ReplayDialog.tsx';

type Opened = { dialog: 'edit' | 'replay' | 'delete'; endpoint: Endpoint } | { dialog: 'create' };

export function EndpointsTab() {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const queries = useQueryClient();
  const query = useQuery(endpointsQuery(environment));
  const [opened, setOpened] = useState<Opened>();
  const close = () => setOpened(undefined);
  const chosen = opened !== undefined && 'endpoint' in opened ? opened.endpoint : undefined;
  const reread = () => queries.invalidateQueries({ queryKey: [environment, 'endpoints'] });
  const refused = ({ message }: Error) => notifications.show({ title: 'Not done', message, color: 'red' });
  const turn = useMutation({
    mutationFn: ({ id, enabled }: { id: number; enabled: boolean }) =>
      changeEndpoint(environment, { id, enabled }),
    onSuccess: reread,
    onError: refused,
  });
  const test = useMutation({
    mutationFn: (endpoint: Endpoint) => sendLatest(environment, endpoint),
    onSuccess: (wasSent) =>
      notifications.show(
        wasSent
          ? { message: 'The latest event is on its way. Deliveries shows how it was taken.', color: 'green' }
          : { message: 'Nothing has happened yet that it asks for, so there is nothing to send.' },
      ),
    onError: refused,
    onSettled: reread,
  });
  const remove = useMutation({
    mutationFn: ({ id }: Endpoint) => deleteEndpoint(environment, id),
    onSuccess: reread,
  });
  const add = (
    <Button leftSection={<IconPlus size={16} />} onClick={() => setOpened({ dialog: 'create' })}>
      Add an endpoint
    </Button>
  );
  return (
    <Loaded query={query} loading={<LoadingRows rows={3} height={172} />}>
      {({ endpoints, next_after: more }) => (
        <Stack>
          {endpoints.length === 0 ? (
            <EmptyState
              icon={<IconSend size={26} />}
              title="No endpoint yet"
              action={mayWrite ? add : undefined}
            >
              Give an address of your application, and each event is sent there as a signed POST request,
              repeated for three days until it is taken.
            </EmptyState>
          ) : (
            <>
              <Group justify="space-between">
                <Text size="sm" c="dimmed" flex="1 1 240px">
                  Each gets the events of a connection in their order, at least once, for three days.
                </Text>
                {mayWrite && add}
              </Group>
              <SimpleGrid cols={{ base: 1, lg: 2 }} spacing="md">
                {endpoints.map((endpoint) => (
                  <EndpointCard
                    key={endpoint.id}
                    endpoint={endpoint}
                    acts={
                      mayWrite
                        ? {
                            onEdit: () => setOpened({ dialog: 'edit', endpoint }),
                            onReplay: () => setOpened({ dialog: 'replay', endpoint }),
                            onDelete: () => setOpened({ dialog: 'delete', endpoint }),
                            onTest: () => test.mutate(endpoint),
                            onTurn: () => turn.mutate({ id: endpoint.id, enabled: !endpoint.enabled }),
                          }
                        : undefined
                    }
                  />
                ))}
              </SimpleGrid>
              {more !== null && (
                <Text size="sm" c="dimmed">
                  These are the first {endpoints.length}. GET /events/endpoints lists those of further
                  connections.
                </Text>
              )}
            </>
          )}
          {(opened?.dialog === 'create' || opened?.dialog === 'edit') && (
            <EndpointDialog environment={environment} endpoint={chosen} onClose={close} />
          )}
          {opened?.dialog === 'replay' && (
            <ReplayDialog environment={environment} endpoints={[opened.endpoint]} onClose={close} />
          )}
          <Confirm
            title="Delete this endpoint?"
            act="Delete it"
            given={opened?.dialog === 'delete' ? chosen : undefined}
            mutation={remove}
            onClose={close}
          >
            <Text className="wrap">
              Nothing is sent to <b>{chosen?.url}</b> any more. What waits for it is dropped
              {chosen !== undefined && chosen.waiting.count > 0 && (
                <>
                  {' '}
                  (<b>{chosen.waiting.count.toLocaleString()}</b> now)
                </>
              )}
              , and its deliveries are no longer listed. The events stay in the feed.
            </Text>
          </Confirm>
        </Stack>
      )}
    </Loaded>
  );
}
