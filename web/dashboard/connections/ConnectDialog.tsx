import { Alert, Anchor, Button, Group, Loader, Stack, Text, TextInput } from '@mantine/core';
import { type UseMutationResult, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useEffect, useRef, useState } from 'react';
import { Copyable } from '../../ui/Copyable.tsx';
import { Dialog } from '../../ui/Dialog.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { IconAlertTriangle, IconCheck, IconExternalLink } from '../../ui/icons.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { useNow } from '../../ui/time.ts';
import { IntegrationSelect } from '../integrations/IntegrationSelect.tsx';
import { integrationsQuery } from '../integrations/queries.ts';
import { ButtonLink, connectionPage } from '../links.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { accountName, emailOf } from './EndUser.tsx';
import { failureText } from './failure-text.ts';
import { openTab } from './open-tab.ts';
import {
  type At,
  connectProgressQuery,
  isLinkOver,
  newConnectLink,
  newestConnectionQuery,
  newReconnectLink,
  type SessionLink,
  type WholeConnection,
} from './queries.ts';

type Begun = { link: string; integration: string; endUser: string; before: number | undefined };

/** Creates a connect link, as an application does for its users, opens or shows it, and waits for the account. */
export function ConnectDialog({
  integration,
  isOpen,
  onClose,
}: {
  /** The only integration to choose. */
  integration?: string;
  isOpen: boolean;
  onClose: () => void;
}) {
  const environment = useEnvironment();
  const queries = useQueryClient();
  const { data: integrations = [] } = useQuery({ ...integrationsQuery(environment), enabled: isOpen });
  const [picked, setPicked] = useState<string | null>(null);
  const chosen = integration ?? picked ?? integrations[0]?.integration_id ?? null;
  const [endUser, setEndUser] = useState('test-user');
  const begin = useMutation({
    mutationFn: async (show: (link: string) => void): Promise<Begun> => {
      const of = { integration: chosen ?? '', endUser: endUser.trim() };
      const before = await queries.fetchQuery(newestConnectionQuery(environment, of));
      const { link } = await newConnectLink(environment, of.integration, of.endUser);
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
    <Dialog opened={isOpen} onClose={close} title="Connect an account">
      {begin.data !== undefined ? (
        <Waiting begun={begin.data} onDone={close} />
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
            description="The ID of a user in your application"
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
              Create a link
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
    </Dialog>
  );
}

function Waiting({ begun, onDone }: { begun: Begun; onDone: () => void }) {
  const environment = useEnvironment();
  const { data: newest } = useQuery({
    ...newestConnectionQuery(environment, begun),
    refetchInterval: ({ state }) => (isNew(state.data?.id, begun.before) ? false : 1_500),
  });
  const isConnected = newest !== undefined && newest !== null && isNew(newest.id, begun.before);
  const main = useMainButton(isConnected ? 'done' : 'waiting');
  if (isConnected) {
    return (
      <Stack>
        <ConnectedNotice title="Connected" missing={newest.health.missing_scopes}>
          {accountName(newest)}
        </ConnectedNotice>
        <Group justify="flex-end">
          <ButtonLink
            variant="default"
            {...connectionPage(environment, { integration: begun.integration, id: newest.connection_id })}
          >
            Open the connection
          </ButtonLink>
          <Button onClick={onDone} ref={main}>
            Done
          </Button>
        </Group>
      </Stack>
    );
  }
  return (
    <Stack>
      <Text size="sm">
        Open the link, or send it to the owner of the account. The link creates one connection and expires in
        30 minutes.
      </Text>
      <LinkToSend link={begun.link} subject="Connect your account" to="" />
      <Group gap="xs" role="status">
        <Loader size="xs" aria-hidden />
        <Dimmed>Waiting for the account</Dimmed>
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
          ref={main}
        >
          Open
        </Button>
      </Group>
    </Stack>
  );
}

/** That an account is connected, and the scopes that its owner did not grant. */
function ConnectedNotice({
  title,
  missing,
  children,
}: {
  title: string;
  missing: string[];
  children: ReactNode;
}) {
  const isWhole = missing.length === 0;
  const Icon = isWhole ? IconCheck : IconAlertTriangle;
  return (
    <Alert
      color={isWhole ? 'green' : 'yellow'}
      icon={<Icon size={18} />}
      title={isWhole ? title : `${title}, but some scopes are missing`}
      role="status"
      className="wrap"
    >
      {!isWhole && `Not granted: ${missing.join(', ')}. `}
      {children}
    </Alert>
  );
}

/** The main button of each phase of a dialog. It receives the focus, because it replaces the button that had it. */
function useMainButton(phase: string) {
  const main = useRef<HTMLButtonElement & HTMLAnchorElement>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: each phase has a main button of its own
  useEffect(() => main.current?.focus(), [phase]);
  return main;
}

/** A link to copy, or to send by e-mail. */
function LinkToSend({ link, subject, to }: { link: string; subject: string; to: string }) {
  const text = `Open this link within 30 minutes to grant access:\n\n${link}\n`;
  return (
    <Stack gap={6}>
      <Copyable value={link} what="the link" />
      <Anchor
        size="sm"
        w="fit-content"
        href={`mailto:${encodeURIComponent(to)}?subject=${encodeURIComponent(subject)}&body=${encodeURIComponent(text)}`}
      >
        E-mail this link
      </Anchor>
    </Stack>
  );
}

function isNew(id: number | undefined, before: number | undefined): boolean {
  return id !== undefined && id !== before;
}

type LinkMutation = Pick<
  UseMutationResult<SessionLink, Error, void>,
  'data' | 'error' | 'isPending' | 'mutate'
>;

/** The link to reconnect an account, and its progress. */
function ReconnectDialog({
  title,
  to,
  link,
  opened,
  onClose,
}: {
  title: string;
  /** The e-mail address of the owner. */
  to: string;
  link: LinkMutation;
  opened: boolean;
  onClose: () => void;
}) {
  return (
    <Dialog opened={opened} onClose={onClose} title={title}>
      {link.data === undefined ? (
        <Stack>
          {link.isPending && <LoadingRows rows={1} height={36} />}
          {link.error !== null && <FaultNotice error={link.error} onRetry={() => link.mutate()} />}
        </Stack>
      ) : (
        <ReconnectProgress link={link.data} to={to} onRenew={() => link.mutate()} onDone={onClose} />
      )}
    </Dialog>
  );
}

function ReconnectProgress({
  link: { link, token },
  to,
  onRenew,
  onDone,
}: {
  link: SessionLink;
  to: string;
  onRenew: () => void;
  onDone: () => void;
}) {
  const environment = useEnvironment();
  const queries = useQueryClient();
  const { data: progress, isError } = useQuery(connectProgressQuery(environment, token));
  const nowMs = useNow();
  const missing = progress?.connection?.missing_scopes;
  const missingCount = missing?.length;
  useEffect(() => {
    if (missingCount === undefined) return;
    for (const name of ['connection', 'connections', 'health', 'syncs', 'runs', 'functions', 'operations'])
      void queries.invalidateQueries({ queryKey: [environment, name] });
  }, [missingCount, environment, queries]);
  const isOver = progress !== undefined && isLinkOver(progress, nowMs);
  const phase = missing !== undefined ? 'done' : isOver ? 'ended' : 'waiting';
  const main = useMainButton(phase);
  const unanswered = isError && (
    <Alert color="yellow" icon={<IconAlertTriangle size={18} />} role="alert">
      The service does not respond. This page tries again.
    </Alert>
  );
  if (missing !== undefined) {
    return (
      <Stack>
        <ConnectedNotice title="Reconnected" missing={missing.map(({ scope }) => scope)}>
          {missing.length === 0
            ? 'The account is connected. Syncs that stopped because of this connection run again.'
            : !isOver && 'The owner can still grant them on the open page.'}
        </ConnectedNotice>
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
            Create a new link
          </Button>
        </Group>
      </Stack>
    );
  }
  return (
    <Stack>
      <Text size="sm">
        The owner of the account opens this link and grants access again. The connection keeps its ID, its
        metadata and its records. The link expires in 30 minutes.
      </Text>
      <LinkToSend link={link} subject="Connect your account again" to={to} />
      {failure}
      {unanswered || (
        <Group gap="xs" role="status">
          <Loader size="xs" aria-hidden />
          <Dimmed>Waiting for the account</Dimmed>
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

/** Creates a link with which the owner of the account grants access again. */
export function ReconnectButton({ at, connection }: { at: At; connection: WholeConnection }) {
  const { health } = connection;
  const environment = useEnvironment();
  const [isOpen, setOpen] = useState(false);
  const link = useMutation({
    mutationFn: async () => {
      const made = await newReconnectLink(environment, { ...at, health });
      return { ...made, title };
    },
  });
  const title =
    health.reconnect?.body.scopes === 'missing' ? 'Request the missing scopes' : 'Reconnect this account';
  return (
    <>
      <Button
        variant={health.reconnect === null ? 'default' : 'filled'}
        leftSection={<IconExternalLink size={16} />}
        onClick={() => {
          setOpen(true);
          link.mutate();
        }}
      >
        {title === 'Reconnect this account' ? 'Reconnect' : title}
      </Button>
      <ReconnectDialog
        title={link.data?.title ?? title}
        to={emailOf(connection) ?? ''}
        link={link}
        opened={isOpen}
        onClose={() => setOpen(false)}
      />
    </>
  );
}
