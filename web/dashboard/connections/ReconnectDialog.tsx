import { Alert, Button, Group, Loader, Modal, Stack, Text } from '@mantine/core';
import { IconAlertTriangle, IconCheck, IconExternalLink } from '@tabler/icons-react';
import { type UseMutationResult, useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect } from 'react';
import { Copyable } from '../../ui/Copyable.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { connectProgressQuery, type ReconnectLink } from './queries.ts';

/** The link by which an account is connected again, and whether that is done. */
export function ReconnectDialog({
  environment,
  title,
  link,
  onClose,
}: {
  environment: string;
  title: string;
  link: Pick<UseMutationResult<ReconnectLink, Error, void>, 'data' | 'error' | 'isPending' | 'mutate'>;
  onClose: () => void;
}) {
  return (
    <Modal opened onClose={onClose} title={title} closeButtonProps={{ 'aria-label': 'Close' }}>
      {link.data === undefined ? (
        <Stack>
          {link.isPending && <LoadingRows rows={1} height={36} />}
          {link.error !== null && <FaultNotice error={link.error} onRetry={() => link.mutate()} />}
        </Stack>
      ) : (
        <Waiting environment={environment} link={link.data} onDone={onClose} />
      )}
    </Modal>
  );
}

function Waiting({
  environment,
  link: { link, token },
  onDone,
}: {
  environment: string;
  link: ReconnectLink;
  onDone: () => void;
}) {
  const queries = useQueryClient();
  const { data: progress } = useQuery(connectProgressQuery(environment, token));
  const made = progress?.connection ?? undefined;
  const isDone = made !== undefined;
  useEffect(() => {
    if (!isDone) return;
    for (const name of ['connection', 'connections', 'syncs', 'runs', 'functions', 'operations'])
      void queries.invalidateQueries({ queryKey: [environment, name] });
  }, [isDone, environment, queries]);
  if (made !== undefined) {
    return (
      <Stack>
        <Alert color="green" icon={<IconCheck size={18} />} title="Reconnected" role="status">
          The connection works again. Syncs that failed because of it run now.
        </Alert>
        {made.missing_scopes.length > 0 && (
          <Text size="sm">Some scopes were not granted. The page of the connection lists them.</Text>
        )}
        <Group justify="flex-end">
          <Button onClick={onDone} data-autofocus>
            Done
          </Button>
        </Group>
      </Stack>
    );
  }
  const isEnded = progress?.state === 'expired' && !progress.under_way;
  return (
    <Stack>
      <Text size="sm">
        The owner of the account opens this link and agrees again. The connection keeps its ID, its metadata
        and its records. The link ends in 30 minutes.
      </Text>
      <Copyable value={link} what="the link" />
      {progress?.failure && (
        <Alert color="yellow" icon={<IconAlertTriangle size={18} />} title="The last attempt failed">
          The account was not connected ({progress.failure.type}). The link can be opened again.
        </Alert>
      )}
      {isEnded ? (
        <Text size="sm" role="status">
          The link has expired. Close this and make another one.
        </Text>
      ) : (
        <Group gap="xs" role="status">
          <Loader size="xs" aria-hidden />
          <Text size="sm" c="dimmed">
            Waiting for the account
          </Text>
        </Group>
      )}
      <Group justify="flex-end">
        <Button variant="default" onClick={onDone}>
          Done
        </Button>
        <Button
          component="a"
          href={link}
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
