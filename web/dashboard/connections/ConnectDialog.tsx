import { Alert, Button, Group, Modal, Select, Stack, Text, TextInput } from '@mantine/core';
import { IconExternalLink } from '@tabler/icons-react';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { Copyable } from '../../ui/Copyable.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { integrationsQuery } from '../integrations/queries.ts';
import { newConnectLink } from './queries.ts';

/** Makes a link of the kind that an application gives to its users, to open oneself or to send on. */
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
  const { data: integrations = [] } = useQuery(integrationsQuery(environment));
  const [picked, setPicked] = useState<string | null>(null);
  const chosen = integration ?? picked ?? integrations[0]?.unique_key ?? null;
  const [endUser, setEndUser] = useState('test-user');
  const link = useMutation({ mutationFn: () => newConnectLink(environment, chosen ?? '', endUser.trim()) });
  const close = () => {
    link.reset();
    void queries.invalidateQueries({ queryKey: [environment] });
    onClose();
  };
  return (
    <Modal
      opened={isOpen}
      onClose={close}
      title="Add a test connection"
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <Stack>
        {link.data === undefined ? (
          <>
            {integration === undefined && (
              <Select
                label="Integration"
                data={integrations.map(({ unique_key, display_name }) => ({
                  value: unique_key,
                  label: display_name,
                }))}
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
            {link.isError && <FaultNotice error={link.error} />}
            <Group justify="flex-end">
              <Button variant="default" onClick={close}>
                Cancel
              </Button>
              <Button
                onClick={() => link.mutate()}
                loading={link.isPending}
                disabled={chosen === null || endUser.trim() === ''}
              >
                Make the link
              </Button>
            </Group>
          </>
        ) : (
          <>
            <Text>
              Open the link here, or send it to whoever owns the account. It makes one connection and ends in
              30 minutes.
            </Text>
            <Copyable value={link.data} what="the link" />
            <Alert>This list shows the connection as soon as the provider has agreed.</Alert>
            <Group justify="flex-end">
              <Button variant="default" onClick={close}>
                Done
              </Button>
              <Button
                component="a"
                href={link.data}
                target="_blank"
                rel="noopener"
                leftSection={<IconExternalLink size={16} />}
              >
                Open
              </Button>
            </Group>
          </>
        )}
      </Stack>
    </Modal>
  );
}
