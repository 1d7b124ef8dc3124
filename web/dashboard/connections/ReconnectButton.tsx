import { Button, Group, Modal, Stack, Text } from '@mantine/core';
import { IconExternalLink } from '@tabler/icons-react';
import { useMutation } from '@tanstack/react-query';
import { Copyable } from '../../ui/Copyable.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { type At, type Health, newReconnectLink } from './queries.ts';

/** A button that makes a link by which the account's owner agrees anew, to open or to send. */
export function ReconnectButton({
  environment,
  at,
  health,
}: {
  environment: string;
  at: At;
  health: Health;
}) {
  const link = useMutation({ mutationFn: () => newReconnectLink(environment, { ...at, health }) });
  const isWidening = health.reconnect?.body.scopes === 'missing';
  return (
    <>
      <Button
        variant={health.reconnect === null ? 'default' : 'filled'}
        leftSection={<IconExternalLink size={16} />}
        onClick={() => link.mutate()}
      >
        {isWidening ? 'Ask for the missing scopes' : 'Reconnect'}
      </Button>
      <Modal
        opened={!link.isIdle}
        onClose={link.reset}
        title={isWidening ? 'Ask for the missing scopes' : 'Reconnect this account'}
        closeButtonProps={{ 'aria-label': 'Close' }}
      >
        <Stack>
          <Text size="sm">
            Whoever owns the account opens this link and agrees again. The connection keeps its ID, its
            metadata and its records. The link ends in 30 minutes.
          </Text>
          {link.isPending && <LoadingRows rows={1} height={36} />}
          {link.isError && <FaultNotice error={link.error} onRetry={() => link.mutate()} />}
          {link.data !== undefined && <Copyable value={link.data} what="the link" />}
          <Group justify="flex-end">
            <Button variant="default" onClick={link.reset}>
              Done
            </Button>
            {link.data !== undefined && (
              <Button
                component="a"
                href={link.data}
                target="_blank"
                rel="noopener"
                leftSection={<IconExternalLink size={16} />}
              >
                Open
              </Button>
            )}
          </Group>
        </Stack>
      </Modal>
    </>
  );
}
