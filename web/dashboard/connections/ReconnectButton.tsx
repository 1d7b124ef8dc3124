import { Button } from '@mantine/core';
import { IconExternalLink } from '@tabler/icons-react';
import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import { type At, type Health, newReconnectLink } from './queries.ts';
import { ReconnectDialog } from './ReconnectDialog.tsx';

/** A button that makes a link by which the account's owner agrees again, to open or to send. */
export function ReconnectButton({
  environment,
  at,
  health,
}: {
  environment: string;
  at: At;
  health: Health;
}) {
  const [isOpen, setOpen] = useState(false);
  const link = useMutation({
    mutationFn: async () => {
      const made = await newReconnectLink(environment, { ...at, health });
      return { ...made, title };
    },
  });
  const title =
    health.reconnect?.body.scopes === 'missing' ? 'Ask for the missing scopes' : 'Reconnect this account';
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
        environment={environment}
        title={link.data?.title ?? title}
        link={link}
        opened={isOpen}
        onClose={() => setOpen(false)}
      />
    </>
  );
}
