import { Button, Group, Modal, Stack } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { FaultNotice } from '../../../ui/FaultNotice.tsx';
import { GrantFields, isWhole } from './GrantFields.tsx';
import { changeRole, type Grant, type User } from './queries.ts';

/** What a user may do from now on, in the place of what they might. */
export function RoleDialog({ user, onClose }: { user: User; onClose: () => void }) {
  const queries = useQueryClient();
  const [grant, setGrant] = useState<Grant>({
    role: user.role ?? 'viewer',
    environments: user.role === 'owner' ? [] : user.environments.map(({ environment }) => environment),
  });
  const save = useMutation({
    mutationFn: () => changeRole({ id: user.id, ...grant }),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: ['users'] });
      await queries.invalidateQueries({ queryKey: ['me'] });
      onClose();
    },
  });
  return (
    <Modal
      opened
      onClose={onClose}
      title={`The role of ${user.name}`}
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <Stack>
        <GrantFields value={grant} onChange={setGrant} />
        {save.isError && <FaultNotice error={save.error} />}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button loading={save.isPending} disabled={!isWhole(grant)} onClick={() => save.mutate()}>
            Save
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
