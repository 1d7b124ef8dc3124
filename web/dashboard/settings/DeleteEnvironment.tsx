import { Alert, Anchor, Button, Group, List, Modal, Stack, Text } from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Link, useNavigate } from '@tanstack/react-router';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { counted } from '../../ui/size.ts';
import { useEnvironment } from '../shell/environment.ts';
import { contentsQuery, deleteEnvironment } from './queries.ts';

/** Deletion of an environment: what goes with it, or what stands in the way. */
export function DeleteEnvironment({ name, onClose }: { name: string; onClose: () => void }) {
  const current = useEnvironment();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const query = useQuery(contentsQuery(name));
  const remove = useMutation({
    mutationFn: () => deleteEnvironment(name),
    onSuccess: async () => {
      await queries.refetchQueries({ queryKey: ['me'] });
      await queries.invalidateQueries({ queryKey: ['environments'] });
      onClose();
      if (name === current) await navigate({ to: '/' });
    },
  });
  const isInUse = (query.data?.connections ?? 0) > 0;
  return (
    <Modal opened onClose={onClose} title={`Delete ${name}?`} closeButtonProps={{ 'aria-label': 'Close' }}>
      <Stack>
        <Loaded query={query} loading={<LoadingRows rows={1} height={96} />}>
          {({ connections, integrations, keys }) =>
            isInUse ? (
              <Alert color="orange" title={`${counted(connections, 'connection')} in the way`}>
                <Text size="sm">
                  Delete{' '}
                  <Anchor
                    inherit
                    underline="always"
                    renderRoot={(props) => (
                      <Link
                        to="/$environment/connections"
                        params={{ environment: name }}
                        search={{}}
                        {...props}
                      />
                    )}
                  >
                    its connections
                  </Anchor>{' '}
                  first, so that what the accounts have granted is revoked.
                </Text>
              </Alert>
            ) : (
              <>
                <Text>This destroys, for good:</Text>
                <List>
                  <List.Item>{counted(keys, 'key')}, refused at once</List.Item>
                  <List.Item>{counted(integrations, 'integration')} with client secrets</List.Item>
                  <List.Item>settings, variables, endpoints, events and logs</List.Item>
                </List>
              </>
            )
          }
        </Loaded>
        {remove.isError && <FaultNotice error={remove.error} />}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose} data-autofocus>
            Keep it
          </Button>
          <Button
            color="red"
            disabled={query.data === undefined || isInUse}
            loading={remove.isPending}
            onClick={() => remove.mutate()}
          >
            Delete for good
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
