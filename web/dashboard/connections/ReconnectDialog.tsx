import { Alert, Button, Group, Loader, Modal, Stack, Text } from '@mantine/core';
import { IconAlertTriangle, IconCheck, IconExternalLink } from '@tabler/icons-react';
import { type UseMutationResult, useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useRef } from 'react';
import { Copyable } from '../../ui/Copyable.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { useNow } from '../../ui/time.ts';
import { connectProgressQuery, isLinkOver, type ReconnectLink } from './queries.ts';

type LinkMutation = Pick<
  UseMutationResult<ReconnectLink, Error, void>,
  'data' | 'error' | 'isPending' | 'mutate'
>;

/** The link by which an account is connected again, and whether that is done. */
export function ReconnectDialog({
  environment,
  title,
  link,
  opened,
  onClose,
}: {
  environment: string;
  title: string;
  link: LinkMutation;
  opened: boolean;
  onClose: () => void;
}) {
  return (
    <Modal opened={opened} onClose={onClose} title={title} closeButtonProps={{ 'aria-label': 'Close' }}>
      {link.data === undefined ? (
        <Stack>
          {link.isPending && <LoadingRows rows={1} height={36} />}
          {link.error !== null && <FaultNotice error={link.error} onRetry={() => link.mutate()} />}
        </Stack>
      ) : (
        <Waiting environment={environment} link={link.data} onRenew={() => link.mutate()} onDone={onClose} />
      )}
    </Modal>
  );
}

function Waiting({
  environment,
  link: { link, token },
  onRenew,
  onDone,
}: {
  environment: string;
  link: ReconnectLink;
  onRenew: () => void;
  onDone: () => void;
}) {
  const queries = useQueryClient();
  const { data: progress, isError } = useQuery(connectProgressQuery(environment, token));
  const nowMs = useNow();
  const missing = progress?.connection?.missing_scopes;
  const missingCount = missing?.length;
  useEffect(() => {
    if (missingCount === undefined) return;
    for (const name of ['connection', 'connections', 'syncs', 'runs', 'functions', 'operations'])
      void queries.invalidateQueries({ queryKey: [environment, name] });
  }, [missingCount, environment, queries]);
  const isOver = progress !== undefined && isLinkOver(progress, nowMs);
  const phase = missing !== undefined ? 'done' : isOver ? 'ended' : 'waiting';
  // The link comes after the dialog opened, and what replaces a focused button takes its focus.
  const main = useRef<HTMLButtonElement & HTMLAnchorElement>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: each phase has a main button of its own
  useEffect(() => main.current?.focus(), [phase]);
  const unanswered = isError && (
    <Alert color="yellow" icon={<IconAlertTriangle size={18} />} role="alert">
      The service does not answer. This page tries again.
    </Alert>
  );
  if (missing !== undefined) {
    return (
      <Stack>
        {missing.length === 0 ? (
          <Alert color="green" icon={<IconCheck size={18} />} title="Reconnected" role="status">
            The account is connected. Syncs that had stopped because of this connection run again now.
          </Alert>
        ) : (
          <Alert
            color="yellow"
            icon={<IconAlertTriangle size={18} />}
            title="Reconnected, but some scopes are missing"
            role="status"
            className="wrap"
          >
            Not granted: {missing.map(({ scope }) => scope).join(', ')}.
            {!isOver && ' The owner can still grant them on the open page.'}
          </Alert>
        )}
        {unanswered}
        <Group justify="flex-end">
          <Button onClick={onDone} ref={main}>
            Done
          </Button>
        </Group>
      </Stack>
    );
  }
  const failure = progress?.failure && (
    <Alert color="yellow" icon={<IconAlertTriangle size={18} />} title="The last attempt failed">
      {failureText(progress.failure.cause, { isOver })}
    </Alert>
  );
  if (isOver) {
    return (
      <Stack>
        {failure}
        <Text size="sm" role="status">
          The link has expired.
        </Text>
        <Group justify="flex-end">
          <Button variant="default" onClick={onDone}>
            Done
          </Button>
          <Button onClick={onRenew} ref={main}>
            Make a new link
          </Button>
        </Group>
      </Stack>
    );
  }
  return (
    <Stack>
      <Text size="sm">
        The owner of the account opens this link and agrees again. The connection keeps its ID, its metadata
        and its records. The link ends in 30 minutes.
      </Text>
      <Copyable value={link} what="the link" />
      {failure}
      {unanswered || (
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
          ref={main}
          data-autofocus
        >
          Open
        </Button>
      </Group>
    </Stack>
  );
}

/** Why the last attempt made no connection, and what the owner can do while the link is good. */
function failureText(cause: string, { isOver }: { isOver: boolean }): string {
  if (cause === 'another_account')
    return 'Another account was chosen. The owner has to choose the same account as before.';
  const text =
    cause === 'access_denied'
      ? 'Access was declined at the provider.'
      : `The account was not connected: ${cause.replaceAll('_', ' ')}.`;
  return isOver ? text : `${text} The owner can open the link again.`;
}
