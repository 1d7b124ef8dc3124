/** The component alone: a chunk that is loaded with the first notification. */
export { Notifications } from '@mantine/notifications';
