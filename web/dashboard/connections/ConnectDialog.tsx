import { Alert, Button, Group, Loader, Modal, Stack, Text, TextInput } from '@mantine/core';
import { IconCheck, IconExternalLink } from '@tabler/icons-react';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { Copyable } from '../../ui/Copyable.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { IntegrationSelect } from '../integrations/IntegrationSelect.tsx';
import { integrationsQuery } from '../integrations/queries.ts';
import { openTab } from './open-tab.ts';
import { newConnectLink, newestConnectionQuery } from './queries.ts';

type Begun = { link: string; integration: string; endUser: string; before: number | undefined };

/** Makes a link of the kind that an application gives to its users, opens it or hands it out, and waits for the account. */
export function ConnectDialog({
  environment,
  integration,
  isOpen,
  onClose,
}: {
  environment: string;
  /** The only one to choose from. */
  integration?: string;
  isOpen: boolean;
  onClose: () => void;
}) {
  const queries = useQueryClient();
  const { data: integrations = [] } = useQuery({ ...integrationsQuery(environment), enabled: isOpen });
  const [picked, setPicked] = useState<string | null>(null);
  const chosen = integration ?? picked ?? integrations[0]?.unique_key ?? null;
  const [endUser, setEndUser] = useState('test-user');
  const begin = useMutation({
    mutationFn: async (show: (link: string) => void): Promise<Begun> => {
      const of = { integration: chosen ?? '', endUser: endUser.trim() };
      const before = await queries.fetchQuery(newestConnectionQuery(environment, of));
      const link = await newConnectLink(environment, of.integration, of.endUser);
      show(link);
      return { ...of, link, before: before?.id };
    },
  });
  const close = () => {
    begin.reset();
    void queries.invalidateQueries({ queryKey: [environment] });
    onClose();
  };
  const open = () => {
    const tab = openTab();
    begin.mutate(tab.show, { onError: tab.close });
  };
  return (
    <Modal
      opened={isOpen}
      onClose={close}
      title="Add a test connection"
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      {begin.data !== undefined ? (
        <Waiting environment={environment} begun={begin.data} onDone={close} />
      ) : (
        <Stack>
          {integration === undefined && (
            <IntegrationSelect
              label="Integration"
              integrations={integrations}
              value={chosen}
              onChange={setPicked}
              allowDeselect={false}
            />
          )}
          <TextInput
            label="End user"
            description="The ID of a user of your application"
            value={endUser}
            onChange={({ currentTarget }) => setEndUser(currentTarget.value)}
          />
          {begin.isError && <FaultNotice error={begin.error} />}
          <Group justify="flex-end">
            <Button
              variant="default"
              onClick={() => begin.mutate(() => undefined)}
              disabled={chosen === null || endUser.trim() === '' || begin.isPending}
            >
              Make a link
            </Button>
            <Button
              onClick={open}
              loading={begin.isPending}
              disabled={chosen === null || endUser.trim() === ''}
              leftSection={<IconExternalLink size={16} />}
            >
              Connect
            </Button>
          </Group>
        </Stack>
      )}
    </Modal>
  );
}

function Waiting({ environment, begun, onDone }: { environment: string; begun: Begun; onDone: () => void }) {
  const { data: newest } = useQuery({
    ...newestConnectionQuery(environment, begun),
    refetchInterval: ({ state }) => (isNew(state.data?.id, begun.before) ? false : 1_500),
  });
  if (newest && isNew(newest.id, begun.before)) {
    return (
      <Stack>
        <Alert color="green" icon={<IconCheck size={18} />} title="Connected" role="status">
          {newest.account?.email ?? newest.connection_id}
        </Alert>
        <Group justify="flex-end">
          <Button
            variant="default"
            renderRoot={(props) => (
              <Link
                to="/$environment/connections/$integration/$id"
                params={{ environment, integration: begun.integration, id: newest.connection_id }}
                {...props}
              />
            )}
          >
            Look at it
          </Button>
          <Button onClick={onDone} data-autofocus>
            Done
          </Button>
        </Group>
      </Stack>
    );
  }
  return (
    <Stack>
      <Text size="sm">
        Use the link here, or send it to the owner of the account. The link makes one connection and expires
        in 30 minutes.
      </Text>
      <Copyable value={begun.link} what="the link" />
      <Group gap="xs" role="status">
        <Loader size="xs" aria-hidden />
        <Text size="sm" c="dimmed">
          Waiting for the account
        </Text>
      </Group>
      <Group justify="flex-end">
        <Button variant="default" onClick={onDone}>
          Done
        </Button>
        <Button
          component="a"
          href={begun.link}
          target="_blank"
          rel="noopener"
          leftSection={<IconExternalLink size={16} />}
        >
          Open
        </Button>
      </Group>
    </Stack>
  );
}

function isNew(id: number | undefined, before: number | undefined): boolean {
  return id !== undefined && id !== before;
}
