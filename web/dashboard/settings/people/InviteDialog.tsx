import { Button, Group, Modal, Stack, TextInput } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { FaultNotice } from '../../../ui/FaultNotice.tsx';
import { useEnvironment } from '../../shell/environment.ts';
import { rules } from '../../sign-in/fields.tsx';
import { GrantFields, isWhole } from './GrantFields.tsx';
import { LinkStep } from './LinkStep.tsx';
import { type Grant, invite } from './queries.ts';

/** Asks somebody in: makes the link that makes them a user. */
export function InviteDialog({ onClose }: { onClose: () => void }) {
  const environment = useEnvironment();
  const queries = useQueryClient();
  const [grant, setGrant] = useState<Grant>({ role: 'viewer', environments: [environment] });
  const [email, setEmail] = useState('');
  const problem = email.trim() === '' ? null : rules.email(email.trim());
  const make = useMutation({
    mutationFn: () => invite({ ...grant, email: email.trim() }),
    onSuccess: () => queries.invalidateQueries({ queryKey: ['invitations'] }),
  });
  return (
    <Modal
      opened
      onClose={onClose}
      closeOnClickOutside={make.data === undefined}
      title="Invite somebody"
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      {make.data !== undefined ? (
        <LinkStep
          link={make.data.link}
          expiresAt={make.data.expires_at}
          isMailed={isMailed(make.data)}
          onDone={onClose}
        />
      ) : (
        <Stack>
          <GrantFields value={grant} onChange={setGrant} />
          <TextInput
            label="E-mail"
            description="With an address, the link makes only the user of that address. Without one, the person who opens the link enters their own."
            type="email"
            value={email}
            error={problem}
            onChange={({ currentTarget }) => setEmail(currentTarget.value)}
          />
          {make.isError && <FaultNotice error={make.error} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              Cancel
            </Button>
            <Button
              loading={make.isPending}
              disabled={!isWhole(grant) || problem !== null}
              onClick={() => make.mutate()}
            >
              Make the link
            </Button>
          </Group>
        </Stack>
      )}
    </Modal>
  );
}

function isMailed(made: object): boolean {
  return 'mailed' in made && made.mailed === true;
}
